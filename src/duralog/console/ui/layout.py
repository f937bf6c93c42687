"""The frame of every page: header, navigation, breadcrumbs, and a place for errors.

A page is a function that `Console.page` registers. It opens `Console.frame` and fills it. An error becomes a page with
a message: 404 for a missing topic, partition or group, 500 for other expected errors. `live` refreshes a part of a page
while it is open.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nicegui import Client, ui

from duralog.broker.security.web_users import Role
from duralog.config.error_text import describe, printable
from duralog.config.times import now_ms
from duralog.console.changes.changer import Changer
from duralog.console.drawing.shown_bytes import visible
from duralog.console.drawing.words import SUBJECTS_PATH, compaction_path, partition_path, records_path
from duralog.console.facts.copies import ClusterCopies
from duralog.console.facts.overview import Overview
from duralog.console.source import Source, UnknownGroup
from duralog.console.ui.elements import block, note_list, problem, text
from duralog.console.ui.reader_zone import zone_here
from duralog.console.ui.standing import standing_of
from duralog.console.viewers import is_allowed, viewer_here
from duralog.errors import DuralogError, UnknownTopic

REFRESH_SECONDS = 2.0
_MOST_PARTITION_DIGITS = 10
_MOST_UNOPENED_PAGES = 100
_OPENED_WITHIN_SECONDS = 5.0
"""A browser opens the socket of a page right after it has loaded the page."""
_NAVIGATION = (
    ("overview", "Overview", "/"),
    ("groups", "Groups", "/groups"),
    ("schemas", "Schemas", SUBJECTS_PATH),
    ("configs", "Configs", "/configs"),
    ("acls", "ACLs", "/acls"),
    ("health", "Health", "/health"),
)
_AUDIT = ("audit", "Audit", "/audit")
_COPIES = ("copies", "Copies", "/copies")
_KEYS = (
    ("/", "search"),
    ("g o", "overview"),
    ("g g", "groups"),
    ("g s", "schemas"),
    ("g c", "configs of the broker"),
    ("g a", "access control lists"),
    ("g h", "health"),
    ("t", "colours: system, light, dark"),
    ("?", "this list"),
)


Crumb = tuple[str, str]
"""A text and the path it leads to."""


class PageMissing(DuralogError):
    """The page does not exist; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Console:
    """The context of all pages."""

    source: Source
    changer: Changer
    audit_log: str | None = None
    """The file of the broker's audit log, to be shown to administrators."""
    copies: ClusterCopies | None = None
    """The directories of a cluster whose replicas can be compared."""

    def page(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the function below as the page at this path. It may be `async`, and may return a response."""

        def register(build: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(build)
            async def shown(*args: Any, **kwargs: Any) -> Any:
                forget_unopened_pages()
                try:
                    answer = build(*args, **kwargs)
                    return await answer if inspect.isawaitable(answer) else answer
                except (UnknownTopic, UnknownGroup, PageMissing) as error:
                    self.show_problem(404, "Not found", f"{printable(str(error))}.")
                except (DuralogError, OSError) as error:
                    self.show_problem(500, "That did not work", printable(describe(error)))
                return None

            shown.__signature__ = inspect.signature(build, eval_str=True)  # type: ignore[attr-defined]
            return ui.page(path, title="duralog")(shown)

        return register

    @contextmanager
    def frame(
        self,
        title: str,
        *,
        marker: str,
        here: str = "",
        crumbs: Sequence[Crumb] = (),
        keys: Sequence[tuple[str, str]] = (),
    ) -> Iterator[None]:
        """The page around what is built inside.

        `here` is its entry in the navigation; `keys` are its own keys and their meanings.
        """
        overview = self.source.overview()
        ui.page_title(f"{printable(title)} · duralog")
        _leave_main_to_us()
        with block("header", "top", role="banner"):
            with block("a", "brand", href="/", aria_label="duralog, overview"):
                block("span", "logo", aria_hidden="true")
                text("span", "duralog")
            with block("nav", "pages", aria_label="Pages"):
                for name, label, path in self._navigation():
                    entry = text("a", label, marker=f"nav-{name}", href=path)
                    if name == here:
                        entry.props["aria-current"] = "page"
            with block("div", "standing"):
                with block("a", "health-link", marker="health-dot", href="/health"):
                    dot = block("span", "dot", aria_hidden="true")
                    standing = text("span", "", marker="connection")
                text("span", overview.target, "target", marker="target", title=overview.target)
            _log_out_button()
            with block("div", "buttons"):
                block("button", "icon theme", marker="theme-toggle", type="button", aria_label="Colours").on(
                    "click", js_handler="() => duralog.nextTheme()"
                )
                text("button", "?", "icon", marker="help", type="button", aria_label="Keyboard shortcuts").on(
                    "click", js_handler="() => duralog.toggleHelp()"
                )
        with block("main", "page", marker=marker) as main:
            if crumbs:
                _breadcrumbs(crumbs, title)
            yield
            text("p", f"Times: {zone_here().about(now_ms())}", "zone-note", marker="zone")
        _key_list((*_KEYS, *keys))
        ui.skip_link("Skip to the contents", target=main)

        def refresh() -> None:
            now = standing_of(self.source.overview())
            dot.classes(replace=f"dot {now.tone}")
            standing.text = now.word
            if standing.props.get("title") != now.sentence:
                standing.props["title"] = now.sentence

        refresh()
        live(refresh)

    def _navigation(self) -> Iterator[tuple[str, str, str]]:
        yield from _NAVIGATION
        if self.copies is not None:
            yield _COPIES
        if self.shows_audit_log():
            yield _AUDIT

    def shows_audit_log(self) -> bool:
        """Whether there is one, for the viewer of this page."""
        return self.audit_log is not None and is_allowed(Role.ADMINISTER)

    def show_problem(self, status: int, heading: str, sentence: str) -> None:
        """Instead of the page that could not be built."""
        client = ui.context.client
        client.content.clear()
        client.status_code = status
        with client.content, self.frame(heading, marker="page-missing" if status == 404 else "page-failed"):
            problem(heading, sentence)


def forget_unopened_pages() -> None:
    """The toolkit keeps a page for a minute, up to a megabyte each: too long if a script requests many."""
    if sum(not client.has_socket_connection for client in Client.instances.values()) > _MOST_UNOPENED_PAGES:
        Client.prune_instances(client_age_threshold=_OPENED_WITHIN_SECONDS)


def live(refresh: Callable[[], Awaitable[None] | None], seconds: float = REFRESH_SECONDS) -> ui.timer:
    """Call `refresh` again and again while the page is open in a browser.

    It changes elements that are there (`label.text = ...`, `DataTable.show`), and the browser gets only what differs.
    After an error it is retried. The reader sees the error meanwhile, and the page keeps its content.
    """
    notice = Notice()

    async def tick() -> None:
        try:
            result = refresh()
            if inspect.isawaitable(result):
                await result
            notice.take_back()
        except (DuralogError, OSError) as error:
            if not timer.is_deleted:
                notice.show(printable(describe(error)))

    timer = ui.timer(seconds, tick, immediate=False)
    return timer


class Notice:
    """A message at the bottom of the page that stays until it is no longer true, or the reader closes it."""

    def __init__(self) -> None:
        self._sentence = ""
        self._shown: ui.notification | None = None

    def show(self, sentence: str) -> None:
        if sentence != self._sentence:
            self.take_back()
            self._sentence = sentence
            self._shown = ui.notification(
                sentence, type="warning", position="bottom", timeout=None, close_button="Close"
            )

    def take_back(self) -> None:
        self._sentence = ""
        if self._shown is not None and not self._shown.is_deleted:
            self._shown.dismiss()
        self._shown = None


class OverviewNotes:
    """The notes of the newest snapshot. Hidden if there are none."""

    def __init__(self) -> None:
        self._place = block("div")
        self._shown: tuple[object, ...] = ()

    def show(self, overview: Overview) -> None:
        tone = "bad" if standing_of(overview).tone == "bad" else ""
        if self._shown == (overview.notes, tone):
            return
        self._shown = (overview.notes, tone)
        self._place.clear()
        if overview.notes:
            with self._place:
                note_list(overview.notes, tone=tone)


def partition_number(text_of_path: str) -> int:
    """The partition that an address names. Raises `PageMissing` for what is not a number."""
    if not (text_of_path.isascii() and text_of_path.isdecimal()) or len(text_of_path) > _MOST_PARTITION_DIGITS:
        raise PageMissing(f"{text_of_path[:50]!r} is not the number of a partition")
    return int(text_of_path)


def partition_tabs(topic: str, partition: int, *, here: str) -> None:
    """The pages of one partition: `picture`, `records`, `compaction`."""
    pages = (
        ("picture", "Segments", partition_path(topic, partition)),
        ("records", "Records", records_path(topic, partition)),
        ("compaction", "Compaction", compaction_path(topic, partition)),
    )
    with block("nav", "tabs", aria_label="Pages of this partition"):
        for name, label, path in pages:
            entry = text("a", label, marker=f"tab-{name}", href=path)
            if name == here:
                entry.props["aria-current"] = "page"


def _log_out_button() -> None:
    viewer = viewer_here()
    if viewer is None:
        return
    with block("form", "viewer", method="post", action="/logout"):
        name = printable(viewer.user.name)
        text("span", name, marker="viewer", title=f"{name}: role {viewer.user.role.label}")
        if viewer.has_session:
            text("button", "Log out", "quiet-button", marker="log-out")


def _leave_main_to_us() -> None:
    """The toolkit puts everything into its own `main`. Screen readers should find only one, after the header."""
    slot = ui.context.client.content.parent_slot
    if slot is not None:
        slot.parent.props["role"] = "presentation"


def _breadcrumbs(crumbs: Sequence[Crumb], title: str) -> None:
    with block("nav", "crumbs", marker="crumbs", aria_label="Breadcrumbs"), block("ol"):
        for label, path in crumbs:
            with block("li"):
                text("a", visible(label), href=path)
        with block("li"):
            text("span", visible(title), aria_current="page")


def _key_list(entries: Sequence[tuple[str, str]]) -> None:
    with block("dialog", "keys", marker="shortcuts", aria_label="Keyboard shortcuts"):
        text("h2", "Keys")
        with block("dl"):
            for keys, meaning in entries:
                with block("div"):
                    with block("dt"):
                        for key in keys.split():
                            text("kbd", key)
                    text("dd", meaning)
        with block("form", method="dialog"):
            text("button", "Close", "button", value="close")
