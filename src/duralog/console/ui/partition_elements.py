"""The browser components of a partition's pages: the picture, the list of records, the opened record.

Each is a component of `assets/` with typed events. Events from a browser are untrusted: offsets must be digits, or the
event is dropped. Offsets are sent as text, since browser numbers have 53 bits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments

from duralog.console.drawing.record_place import NotAPlace, parse_offset

Handler = Callable[..., Awaitable[None] | None]
_WIDEST = 10_000


class PictureElement(Element, component="assets/partition_picture.js"):
    def __init__(self, *, on_width: Handler, on_look: Handler, on_open: Handler) -> None:
        """`on_width(points)`, `on_look(base_offset, how)` with `hover`, `focus` or `click`, `on_open(base_offset)`."""
        super().__init__()
        self.props["svg"] = ""

        def width(event: GenericEventArguments) -> Any:
            if isinstance(event.args, int) and 0 < event.args < _WIDEST:
                return on_width(event.args)
            return None

        def look(event: GenericEventArguments) -> Any:
            if isinstance(event.args, dict) and (base := _offset(event.args.get("base"))) is not None:
                return on_look(base, str(event.args.get("how")))
            return None

        def opened(event: GenericEventArguments) -> Any:
            base = _offset(event.args)
            return None if base is None else on_open(base)

        self.on("width", width)
        self.on("look", look)
        self.on("open", opened)

    def show(self, svg: str) -> None:
        if self.props["svg"] != svg:
            self.props["svg"] = svg


class RecordList(Element, component="assets/record_list.js"):
    def __init__(
        self,
        *,
        label: str,
        on_open: Handler,
        on_turn: Handler,
        on_follow: Handler,
        on_scrolled: Handler,
        on_place: Handler,
        parse: Callable[[object], object] | None = None,
    ) -> None:
        """`on_open(offset or None)`, `on_turn(is_newer)`, `on_follow()`, `on_scrolled(is_away)`, `on_place(query)`.

        `parse` reads the `id` of a row, which comes back from the browser; None for what is not one.
        """
        super().__init__()
        self.props.update(
            rows=[],
            opened=None,
            following=False,
            paused="",
            busy=True,
            descending=False,
            label=label,
            empty="",
            zone="",
            waiting="",
        )
        read_id = parse or _offset
        self.on("open", lambda event: on_open(read_id(event.args)))
        self.on("newer", lambda: on_turn(True))
        self.on("older", lambda: on_turn(False))
        self.on("follow", lambda: on_follow())
        self.on("scrolled", lambda event: on_scrolled(event.args is True))
        self.on("place", lambda event: on_place(str(event.args)[:_WIDEST]))

    def show(self, **properties: Any) -> None:
        """Sends the differences from the shown state."""
        changed = {name: value for name, value in properties.items() if self.props.get(name) != value}
        if changed:
            self.props.update(changed)

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        rows: Sequence[dict[str, Any]] = self.props["rows"]
        return rows


class RecordPanel(Element, component="assets/record_panel.js"):
    def __init__(self, *, on_close: Handler, on_form: Handler, on_more: Handler) -> None:
        """`on_close()`, `on_form(part, form)`, `on_more()`."""
        super().__init__()
        self.props["record"] = None

        def form(event: GenericEventArguments) -> Any:
            if isinstance(event.args, dict):
                return on_form(str(event.args.get("part")), str(event.args.get("form")))
            return None

        self.on("close", lambda: on_close())
        self.on("form", form)
        self.on("more", lambda: on_more())

    def show(self, record: dict[str, Any] | None) -> None:
        if self.props["record"] != record:
            self.props["record"] = record


def _offset(value: object) -> int | None:
    try:
        return parse_offset(value) if isinstance(value, str) else None
    except NotAPlace:
        return None
