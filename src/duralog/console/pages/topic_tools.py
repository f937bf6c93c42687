"""The tools above the records of a topic: search, pages, following, and downloads of matches."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import urlencode

from nicegui.element import Element
from nicegui.events import GenericEventArguments

from duralog.console.drawing.reader_zone import NotATime
from duralog.console.drawing.record_place import NotAPlace
from duralog.console.drawing.topic_place import TopicPlace, topic_place_of
from duralog.console.drawing.words import bytes_text, counted, download_path
from duralog.console.facts.payloads import TopicFormats
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import MatchProgress, TopicPage
from duralog.console.pages.downloads import DECODED, Download, download_of
from duralog.console.ui.elements import block, text
from duralog.console.ui.layout import live
from duralog.console.ui.reader_zone import zone_here
from duralog.filters.parsing import LONGEST

_SUBMITTED = """(event) => {
    event.preventDefault();
    emit(Object.fromEntries(new FormData(event.target)));
}"""
_VALUE = "(event) => emit(event.target.value)"
_REFRESH_SECONDS = 0.5
_FORMATS = (("jsonl", "JSON lines"), ("csv", "CSV"), ("parquet", "Parquet"))
EXAMPLES = (
    ("lost", "in key, value or headers"),
    ('value contains "not found" ignoring case', "text in the value"),
    ("key = user-17", "one key; key = 0x00ff for bytes, key = null for none"),
    (r"value matches 'id-\d+'", "a regular expression (RE2)"),
    ("header trace exists", "a header; also header trace = abc"),
    ("$.customer.id = 7", "a member of the value: JSON, or decoded by a schema"),
    ("$.amount > 10.5 and $.paid = false", "numbers, true, false, null; and, or, not, ( )"),
    ("$.items[*].name = tea", "one of a list; [0] is the first"),
    ("key $.id exists", "JSON in the key"),
)

Go = Callable[[TopicPlace], Awaitable[None]]


class TopicTools:
    def __init__(
        self, topic: str, go: Go, turn: Callable[[bool], Awaitable[None]], follow: Callable[[], Awaitable[None]]
    ) -> None:
        self._topic = topic
        self._go = go
        self._zone = zone_here()
        self._place = TopicPlace()
        self._run = secrets.token_urlsafe(12)
        self._has_decoded, self._is_decoded = False, True
        with block("form", "topic-search", marker="topic-search", role="search") as form:
            self._where = self._field("where", "Where", "$.customer.id = 7", "where", "wide", data_search="")
            self._since = self._field("from", "From", "-1h, 2026-01-31 12:00", "from")
            self._until = self._field("to", "To (before)", "2026-01-31 13:00", "to")
            self._partitions = self._field("partitions", "Partitions", "all, or 0,2-5", "partitions")
            self._offsets = self._field("offsets", "Offsets", "100-200, 100-", "offsets")
            with block("label", "field"):
                text("span", "Order")
                with block("select", name="order", marker="order") as self._order:
                    text("option", "Newest first", value="newest")
                    text("option", "Oldest first", value="oldest")
            with block("div", "submit"):
                text("button", "Search", "button", marker="search", type="submit")
                text("button", "Clear", "quiet-button", marker="clear", type="reset").on(
                    "click", lambda: go(TopicPlace())
                )
        form.on("submit", self._submitted, js_handler=_SUBMITTED)
        with block("div", "filter-problem", marker="filter-problem", role="alert") as self._problem:
            self._why = text("p", "", "tone bad")
            self._pointed = text("pre", "", marker="filter-place")
        self._problem.set_visibility(False)
        _help()
        with block("div", "record-tools"):
            with block("div", "turns"):
                self._oldest = self._button("⇤", "Oldest records", "oldest")
                self._oldest.on("click", lambda: go(replace(self._place.filters, is_oldest_first=True)))
                self._older = self._button("‹ Older", "Older page (p)", "older")
                self._older.on("click", lambda: turn(False))
                self._newer = self._button("Newer ›", "Newer page (n)", "newer")
                self._newer.on("click", lambda: turn(True))
                self._newest = self._button("⇥", "Newest records", "newest")
                self._newest.on("click", lambda: go(replace(self._place.filters, is_oldest_first=False)))
                self._follow = self._button("Follow", "Follow the tail (f)", "follow")
                self._follow.on("click", lambda: follow())
                self._jump = block(
                    "input",
                    "jump",
                    marker="jump-time",
                    placeholder="Go to time",
                    aria_label="Go to time",
                    autocomplete="off",
                    spellcheck="false",
                )
                self._jump.on("keydown.enter", self._jumped, js_handler=_VALUE)
            with block("div", "turns downloads", role="group", aria_label="Download"):
                text("span", "Download", "below")
                self._links = {
                    extension: text("a", label, "quiet-button", marker=f"download-{extension}", download="")
                    for extension, label in _FORMATS
                }
                with block("label", "check") as self._decoded_box:
                    box = block("input", type="checkbox", marker="download-decoded", checked="")
                    text("span", "decoded")
                box.on("change", self._choose_decoded, js_handler="(event) => emit(event.target.checked)")
            self._decoded_box.set_visibility(False)
        self._downloading = _DownloadLine(self._run)

    def show_place(self, place: TopicPlace) -> None:
        self._place = place
        times = (place.since and self._zone.typed(place.since), place.until and self._zone.typed(place.until))
        for field, value in (
            (self._where, place.where),
            (self._since, times[0]),
            (self._until, times[1]),
            (self._partitions, place.partitions),
            (self._offsets, place.offsets),
            (self._order, "oldest" if place.is_oldest_first else "newest"),
            (self._jump, place.time and self._zone.typed(place.time)),
        ):
            if field.props.get("value", "") != value:
                field.props["value"] = value
        self._follow.props["aria-pressed"] = "true" if place.is_followed else "false"
        for button in (self._oldest, self._older, self._newer, self._newest, self._follow, self._jump):
            button.set_visibility(not place.is_search)
        self._show_links()
        self._downloading.dismiss()

    def show_formats(self, formats: TopicFormats) -> None:
        """Downloads can be decoded, if anything is."""
        self._has_decoded = bool(formats.decoded)
        self._decoded_box.set_visibility(self._has_decoded)
        self._show_links()

    def _choose_decoded(self, event: GenericEventArguments) -> None:
        self._is_decoded = event.args is True
        self._show_links()

    def _show_links(self) -> None:
        place = self._place
        address = download_path(self._topic) + (place.filters.query() or "?")
        for extension, link in self._links.items():
            how = {"as": extension, "run": self._run}
            if self._has_decoded and self._is_decoded:
                how[DECODED] = "1"
            link.props["href"] = f"{address}&{urlencode(how)}".replace("?&", "?")
            link.props["title"] = f"Download {'all matches' if place.is_search else 'all records'} as .{extension}"

    def show_page(self, page: TopicPage) -> None:
        _enable(self._older, not page.is_at_start)
        _enable(self._newer, not page.is_at_end)

    def show_problem(self, why: str, pointed: str = "") -> None:
        self._why.text = why
        self._pointed.text = pointed
        self._pointed.set_visibility(bool(pointed))
        self._problem.set_visibility(bool(why))

    async def _submitted(self, event: GenericEventArguments) -> None:
        if not isinstance(event.args, dict):
            return
        typed = {str(name): str(value).strip()[: LONGEST + 1] for name, value in event.args.items()}
        try:
            for name in ("from", "to"):
                if typed.get(name):
                    typed[name] = self._zone.link(typed[name])
            place = topic_place_of(typed)
        except (NotAPlace, NotATime) as error:
            self.show_problem(str(error))
            return
        await self._go(place)

    async def _jumped(self, event: GenericEventArguments) -> None:
        typed = str(event.args).strip()
        try:
            time = self._zone.link(typed) if typed else ""
        except NotATime as error:
            self.show_problem(str(error))
            return
        await self._go(replace(self._place.filters, time=time, is_oldest_first=bool(time)))

    def _field(self, name: str, label: str, placeholder: str, marker: str, classes: str = "", **more: str) -> Element:
        with block("label", f"field {classes}".strip()):
            text("span", label)
            return block(
                "input",
                name=name,
                marker=marker,
                placeholder=placeholder,
                autocomplete="off",
                spellcheck="false",
                **more,
            )

    def _button(self, label: str, tip: str, marker: str) -> Element:
        return text("button", label, "quiet-button", type="button", marker=marker, title=tip, aria_label=tip)


class _DownloadLine:
    """The progress of the page's last download, and a button to stop it."""

    def __init__(self, run: str) -> None:
        self._run = run
        with block("div", "search-line", marker="download-line", role="status") as self._line:
            self._bar = block("progress", max="1", value="0", aria_label="Downloaded so far")
            self._sentence = text("span", "", "about")
            self._stop = text("button", "Stop", "quiet-button", type="button", marker="download-stop")
            self._stop.on("click", self._stopped)
        self._line.set_visibility(False)
        self._dismissed: Download | None = None
        live(self._refresh, _REFRESH_SECONDS)

    def dismiss(self) -> None:
        """Hide the result of an earlier download, which was for other records. A running one stays."""
        download = download_of(self._run)
        if download is not None and download.progress().state is not RunState.RUNNING:
            self._dismissed = download
            self._line.set_visibility(False)

    def _stopped(self) -> None:
        download = download_of(self._run)
        if download is not None:
            download.stop()

    def _refresh(self) -> None:
        download = download_of(self._run)
        if download is None or download is self._dismissed:
            return
        progress = download.progress()
        self._line.set_visibility(True)
        self._bar.props["value"] = f"{progress.share:.3f}"
        words = {
            RunState.RUNNING: "Downloading",
            RunState.DONE: "Downloaded",
            RunState.STOPPED: "Download stopped",
            RunState.FAILED: f"Download failed: {progress.error}",
        }
        self._sentence.text = f"{words[progress.state]}: {progress_text(progress)}"
        self._stop.set_visibility(progress.state is RunState.RUNNING)
        self._bar.set_visibility(progress.state is RunState.RUNNING)


def progress_text(progress: MatchProgress) -> str:
    """`12 matches, 3 000 records, 1.5 MiB of 30 MiB read`."""
    total = "" if progress.bytes_total is None else f" of {bytes_text(max(progress.bytes_total, progress.bytes_read))}"
    read = f"{counted(progress.records_read, 'record')}, {bytes_text(progress.bytes_read)}{total} read"
    return f"{counted(progress.matches, 'match')}; {read}"


def _help() -> None:
    with block("details", "filter-help", marker="filter-help"):
        text("summary", "Syntax")
        with block("table", "plain"), block("tbody"):
            for example, meaning in EXAMPLES:
                with block("tr"):
                    with block("td"):
                        text("code", example)
                    text("td", meaning)


def _enable(button: Element, is_on: bool) -> None:
    if is_on:
        button.props.pop("disabled", None)
        button.update()
    else:
        button.props["disabled"] = True
