"""The dialog of a change: a form, a preview with the command that does the same, one confirmation, the outcome.

A dialog may stay open for hours, while the topic is deleted, a user's role changes or another user makes a change. Only
the change itself is kept from the first step, and everything is checked again when it is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import run, ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from duralog.config.error_text import describe, printable
from duralog.config.times import now_ms
from duralog.console.changes.change import Change, Preview, WrongInput
from duralog.console.changes.forms import Form
from duralog.console.drawing.shown_bytes import visible
from duralog.console.source import ChangesNotAllowed
from duralog.console.ui.elements import text
from duralog.console.ui.layout import Console
from duralog.console.ui.reader_zone import zone_here
from duralog.console.viewers import is_allowed, viewer_here
from duralog.errors import DuralogError

_NOTHING = {
    "problem": "",
    "wrong": "",
    "sentence": "",
    "columns": [],
    "rows": [],
    "notes": [],
    "whyNot": "",
    "command": "",
}


WhenDone = Callable[[], Awaitable[None]] | None
"""Called after the change was made, to read the page's part again."""


class ChangeDialog(Element, component="assets/change_dialog.js"):
    """Opens when it is made, and deletes itself when it is closed."""

    def __init__(self, console: Console, form: Form, when_done: WhenDone = None) -> None:
        super().__init__()
        self._when_done = when_done
        self._console = console
        self._form = form
        self._change: Change | None = None
        self._is_done = False
        self.props.update(
            title=visible(form.title),
            about=visible(form.about),
            verb=form.verb,
            harmful=form.is_harmful,
            fields=[field.properties() for field in form.fields],
            step="form",
            busy=False,
            **_NOTHING,
        )
        self.on("send", self._sent)
        self.on("confirm", self._confirmed)
        self.on("back", self._back)
        self.on("closed", self._closed)

    async def _sent(self, event: GenericEventArguments) -> None:
        if self.props["busy"] or self.props["step"] != "form":
            return
        try:
            change = self._form.change(event.args)
        except WrongInput as error:
            self._show(problem=visible(str(error)), wrong=error.field)
            return
        self._show(busy=True, problem="", wrong="")
        try:
            planned = await run.io_bound(self._plan, change)
        except (DuralogError, OSError) as error:
            if not self.is_deleted:
                self._show(busy=False, problem=_sentence(error))
            return
        if planned is None or self.is_deleted:
            return
        preview, command = planned
        self._change = change
        why_not = "" if preview.has_effect else "There is nothing to do."
        self._show(
            step="plan",
            busy=False,
            sentence=visible(preview.sentence),
            columns=list(preview.columns),
            rows=[[visible(cell) for cell in row] for row in preview.rows],
            notes=[visible(note) for note in preview.notes],
            whyNot=why_not or self._why_not(change) or "",
            command=command if preview.has_effect else "",
        )

    def _plan(self, change: Change) -> tuple[Preview, str]:
        """On a worker thread."""
        return self._console.changer.preview(change), self._console.changer.command(change)

    async def _confirmed(self) -> None:
        change = self._change
        if change is None or self.props["busy"] or self.props["step"] != "plan":
            return
        viewer = viewer_here()
        user = None if viewer is None else viewer.user.name
        self._show(busy=True, problem="")
        try:
            if (why_not := self._why_not(change)) is not None:
                raise ChangesNotAllowed(why_not)
            done = await run.io_bound(lambda: self._console.changer.carry_out(change, user=user))
        except (DuralogError, OSError) as error:
            if not self.is_deleted:
                self._show(busy=False, problem=_sentence(error))
            return
        self._change, self._is_done = None, True
        if done is not None and not self.is_deleted:
            self._show(busy=False, step="done", sentence=visible(done))
        if done is not None and self._when_done is not None:
            await self._when_done()

    def _why_not(self, change: Change) -> str | None:
        if (why_not := self._console.changer.why_not(self._console.source.overview().held_by)) is not None:
            return why_not
        if not is_allowed(change.role):
            return f"This needs the role {change.role.label}. The command does the same, if you have access:"
        return None

    def _back(self) -> None:
        if not self.props["busy"]:
            self._change = None
            self._show(step="form", **_NOTHING)

    def _closed(self) -> None:
        if self._is_done and self._form.leads_to is not None:
            ui.navigate.to(self._form.leads_to)
        self.delete()

    def _show(self, **properties: object) -> None:
        self.props.update({name: value for name, value in properties.items() if self.props.get(name) != value})


MakeForm = Callable[[], Form | Awaitable[Form]]


def change_button(console: Console, label: str, marker: str, make: MakeForm, *, when_done: WhenDone = None) -> Element:
    """A button that opens the dialog of a change. `make` may read: its errors are shown."""
    button = text("button", label, "quiet-button", type="button", marker=marker, aria_haspopup="dialog")
    place = button.parent_slot
    assert place is not None
    return button.on("click", lambda: open_change(console, place.parent, make, when_done))


async def open_change(console: Console, place: Element, make: MakeForm, when_done: WhenDone = None) -> None:
    try:
        made = make()
        form = made if isinstance(made, Form) else await made
    except (DuralogError, OSError) as error:
        ui.notify(_sentence(error), type="warning", position="bottom")
        return
    with place:
        ChangeDialog(console, form, when_done)


def typed_time_here() -> Callable[[str], int]:
    """Parses times that the reader of this page enters, in the zone of the browser. It raises `ValueError`."""
    zone = zone_here()
    return lambda typed: zone.parse(typed, now_ms=now_ms())


def _sentence(error: Exception) -> str:
    """As it is: its first word may be a name."""
    return printable(describe(error))
