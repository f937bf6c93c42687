"""`/topic/T/records`: the records of all partitions, merged by time: by page, live, or as search results.

The address says what is shown (`duralog.console.drawing.topic_place`). Reading and searching run on worker threads; a
result for a page that was left is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from nicegui import background_tasks, run, ui
from starlette.requests import Request

from duralog.config.error_text import describe, printable
from duralog.config.times import now_ms
from duralog.console.drawing.record_place import NotAPlace, parse_when
from duralog.console.drawing.record_rows import topic_row_of
from duralog.console.drawing.topic_place import TopicPlace, parse_topic_offset, topic_place_of
from duralog.console.drawing.words import counted, topic_path, topic_records_path
from duralog.console.facts.records import ShownRecord
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import MatchProgress, PlacedRecord, TopicPage
from duralog.console.pages.record_formats import RecordFormats
from duralog.console.pages.record_view import RecordView
from duralog.console.pages.topic_tools import TopicTools, progress_text
from duralog.console.source import TopicSearch
from duralog.console.sources.topic_pages import topic_page
from duralog.console.ui.elements import block, heading, text
from duralog.console.ui.layout import Console, live
from duralog.console.ui.partition_elements import RecordList
from duralog.console.ui.reader_zone import zone_here
from duralog.errors import DuralogError
from duralog.filters.conditions import FilterError

MOST_FOLLOWED = 200
_REFRESH_SECONDS = 0.4
_FOLLOW_SECONDS = 1.0
_KEYS = (
    ("j k", "next and previous record"),
    ("Enter", "open the record"),
    ("n p", "newer and older page"),
    ("f", "follow the tail"),
    ("Esc", "close the record"),
)
Opened = tuple[int, int]
"""A partition and an offset."""


def register(console: Console) -> None:
    @console.page("/topic/{topic}/records")
    async def topic_records_page(topic: str, request: Request) -> None:
        console.source.topic(topic)
        crumbs = (("Topics", "/"), (topic, topic_path(topic)))
        with console.frame("Records", marker="page-topic-records", here="overview", crumbs=crumbs, keys=_KEYS):
            browser = TopicRecords(console, topic)
            await browser.begin(dict(request.query_params))


class TopicRecords:
    def __init__(self, console: Console, topic: str) -> None:
        self._source = console.source
        self._topic = topic
        self._zone = zone_here()
        self._place = TopicPlace()
        self._page: TopicPage | None = None
        self._search: TopicSearch | None = None
        self._records: dict[Opened, ShownRecord] = {}
        self._turn = 0
        """The number of the newest request: results of earlier ones are dropped."""
        self._is_away = False
        self._about = heading(f"Records of {topic}")
        self._tools = TopicTools(topic, self._go, self._turn_page, self._follow)
        self._formats = RecordFormats(console.source, topic, self._tools.show_formats)
        with block("div", "search-line", marker="search-line") as self._line:
            self._bar = block("progress", max="1", value="0", marker="search-progress", aria_label="Searched so far")
            text("button", "Stop", "quiet-button", type="button", marker="search-stop").on("click", self._stop_search)
        self._line.set_visibility(False)
        self._notes = text("p", "", "about note-line", marker="record-note")
        with block("div", "records-area") as self._area:
            self._list = RecordList(
                label=f"Records of {topic}",
                on_open=self._open,
                on_turn=self._turn_page,
                on_follow=self._follow,
                on_scrolled=self._scrolled,
                on_place=self._came_back,
                parse=parse_topic_offset,
            )
            self._view = RecordView(
                console, topic, on_close=lambda: self._open(None), say=self._tools.show_problem, adorn=self._adorn
            )
        live(self._refresh_search, _REFRESH_SECONDS)
        live(self._tail, _FOLLOW_SECONDS)
        # Only a few may run: one without a page would keep others from starting.
        ui.context.client.on_delete(self._stop_search)

    async def begin(self, query: dict[str, str]) -> None:
        place = self._place_in(query)
        self._tools.show_place(place)
        background_tasks.create(self._load(place), name="topic records", context=self._area)

    def _place_in(self, query: dict[str, str]) -> TopicPlace:
        try:
            self._tools.show_problem("")
            return topic_place_of(query)
        except NotAPlace as error:
            self._tools.show_problem(str(error))
            return TopicPlace()

    async def _came_back(self, query: str) -> None:
        """The browser's back and forward buttons."""
        await self._load(self._place_in(dict(parse_qsl(query.removeprefix("?")))))

    async def _go(self, place: TopicPlace) -> None:
        """Shows other records, and updates the address."""
        if place != self._place:
            ui.navigate.history.push(topic_records_path(self._topic) + place.query())
        self._tools.show_problem("")
        await self._load(place)

    async def _load(self, place: TopicPlace) -> None:
        self._turn += 1
        turn = self._turn
        self._stop_search()
        self._search, self._page, self._place = None, None, place
        self._view.close()
        self._tools.show_place(place)
        self._line.set_visibility(False)
        self._notes.text = ""
        opened = None if place.opened is None else "{}:{}".format(*place.opened)
        is_newest_first = not place.is_oldest_first and not place.time
        self._list.show(
            opened=opened, following=place.is_followed, descending=is_newest_first, busy=True, zone=self._zone.name
        )
        if place.is_search:
            self._show(())
            self._list.show(busy=True, waiting="Searching …")
            self._begin_search(place)
        else:
            self._list.show(waiting="Reading records …")
            await self._load_page(place, turn)
        await self._formats.refresh()
        if place.opened is not None and turn == self._turn:
            await self._open(place.opened)

    # Pages

    async def _load_page(self, place: TopicPlace, turn: int) -> None:
        try:
            page = await run.io_bound(self._read_page, place)
        except (DuralogError, OSError, NotAPlace) as error:
            if turn == self._turn:
                self._fail(error)
            return
        if page is not None and turn == self._turn:
            self._page = page
            self._show(page.records if self._list.props["descending"] is False else page.records[::-1])
            self._tools.show_page(page)
            self._notes.text = " ".join(page.notes)
            is_all_empty = page.is_at_start and page.is_at_end
            self._list.show(
                empty="No records yet." if is_all_empty else "No records here: older or newer pages have some."
            )
            self._show_about()

    def _read_page(self, place: TopicPlace) -> TopicPage:
        """On a worker thread."""
        partitions = place.chosen([row.partition for row in self._source.topic(self._topic)])
        time_ms = parse_when(place.time, now_ms=now_ms()) if place.time else None
        is_start = place.is_oldest_first or time_ms is not None
        backwards = place.is_backwards if place.at is not None else not is_start
        page = topic_page(self._source, self._topic, partitions, at=place.at, time_ms=time_ms, backwards=backwards)
        return replace(page, records=tuple(self._decoded(page.records)))

    def _decoded(self, records: Sequence[PlacedRecord]) -> list[PlacedRecord]:
        """On a worker thread. Keeps the order."""
        known: dict[Opened, ShownRecord] = {}
        for partition in {each.partition for each in records}:
            own = [each.record for each in records if each.partition == partition]
            for record in self._source.payloads.decoded(self._topic, partition, own):
                known[partition, record.offset] = record
        return [PlacedRecord(each.partition, known[each.partition, each.record.offset]) for each in records]

    def _show_about(self) -> None:
        page = self._page
        if page is None:
            return
        is_paused = self._place.is_followed and (self._is_away or self._place.opened is not None)
        self._list.show(paused="Paused while you read. Resume" if is_paused else "")
        partitions = counted(len(page.end), "partition")
        shown = counted(len(self._records), "record")
        if self._place.is_followed:
            self._about.text = "Paused." if is_paused else f"Following {partitions}, newest first: {shown}"
        else:
            self._about.text = f"{shown} of {partitions}, by time"

    async def _turn_page(self, is_newer: bool) -> None:
        page = self._page
        if page is None:
            return
        if page.is_at_end if is_newer else page.is_at_start:
            sentence = "Those are the newest: f follows them." if is_newer else "Those are the oldest."
            ui.notify(sentence, position="bottom", timeout=1500)
            return
        at = page.end if is_newer else page.first
        order = replace(self._place.filters, is_oldest_first=self._place.is_oldest_first or bool(self._place.time))
        await self._go(replace(order, at=at, is_backwards=not is_newer))

    async def _follow(self) -> None:
        place = replace(self._place.filters, is_oldest_first=False)
        if not self._place.is_search:
            await self._go(place if self._place.is_followed else replace(place, is_followed=True))

    def _scrolled(self, is_away: bool) -> None:
        self._is_away = is_away
        self._show_about()

    async def _tail(self) -> None:
        page, turn = self._page, self._turn
        if not self._place.is_followed or page is None or self._is_away or self._place.opened is not None:
            return
        more = await run.io_bound(self._read_tail, page)
        if more is None or turn != self._turn:
            return
        self._page = replace(page, end={**page.end, **more[1]})
        if more[0]:
            shown = [PlacedRecord(place[0], record) for place, record in self._records.items()]
            newest = sorted([*shown, *more[0]], key=lambda each: each.order, reverse=True)
            self._show(tuple(newest[:MOST_FOLLOWED]))
        self._show_about()

    def _read_tail(self, page: TopicPage) -> tuple[list[PlacedRecord], dict[int, int]]:
        """On a worker thread: reads the partitions that have grown."""
        found: list[PlacedRecord] = []
        ends: dict[int, int] = {}
        for row in self._source.topic(self._topic):
            at = page.end.get(row.partition)
            if at is not None and row.end_offset is not None and row.end_offset > at:
                more = self._source.tail(self._topic, row.partition, at, MOST_FOLLOWED)
                found += [PlacedRecord(row.partition, record) for record in more.records]
                ends[row.partition] = more.next_offset
        return self._decoded(found), ends

    # Searches

    def _begin_search(self, place: TopicPlace) -> None:
        existing = [row.partition for row in self._source.topic(self._topic)]
        try:
            self._search = self._source.topic_searches.start(place.wanted(self._topic, existing, now_ms=now_ms()))
        except FilterError as error:
            self._tools.show_problem(str(error), error.pointed())
            self._list.show(busy=False, empty="Nothing was searched.")
            self._about.text = ""
            return
        except (DuralogError, NotAPlace) as error:
            self._fail(error)
            return
        self._line.set_visibility(True)
        self._refresh_search()

    def _stop_search(self) -> None:
        if self._search is not None:
            self._search.stop()

    def _refresh_search(self) -> None:
        search = self._search
        if search is None:
            return
        progress = search.progress()
        found = search.found()
        if [(each.partition, each.record.offset) for each in found] != list(self._records):
            self._show(found)
        is_over = progress.state is not RunState.RUNNING
        self._bar.props["value"] = f"{progress.share:.3f}"
        self._about.text = _search_sentence(progress, len(found), "oldest" if self._place.is_oldest_first else "newest")
        self._notes.text = " ".join(progress.notes)
        self._list.show(busy=not is_over, empty="No record matches." if is_over else "")
        if is_over:
            self._search = None
            self._line.set_visibility(False)

    # One record

    def _show(self, records: tuple[PlacedRecord, ...]) -> None:
        self._records = {(each.partition, each.record.offset): each.record for each in records}
        self._list.show(rows=[topic_row_of(each, self._zone) for each in records], busy=False)

    async def _open(self, opened: Opened | None) -> None:
        if opened != self._place.opened:
            self._place = replace(self._place, opened=opened)
            ui.navigate.history.replace(topic_records_path(self._topic) + self._place.query())
        self._list.show(opened=None if opened is None else "{}:{}".format(*opened))
        self._show_about()
        if opened is None:
            self._view.close()
        else:
            await self._view.open(*opened, self._records.get(opened))

    def _adorn(self, panel: dict[str, Any], record: ShownRecord) -> None:
        """Adds the partition, and a search for the key in all partitions."""
        panel["place"] = f"{panel['partition']}:{panel['offset']}"
        for part in panel["parts"]:
            if part["find"]:
                part["find"] = topic_records_path(self._topic) + TopicPlace(where=_key_condition(record)).query()

    def _fail(self, error: Exception) -> None:
        self._tools.show_problem(printable(describe(error)))
        self._list.show(busy=False, rows=[], empty="The records cannot be read.")
        self._about.text = ""


def _search_sentence(progress: MatchProgress, shown: int, which: str) -> str:
    if progress.error is not None:
        return printable(progress.error)
    if progress.state is RunState.RUNNING:
        return f"Searching: {progress_text(progress)} …"
    stopped = "Stopped. " if progress.state is RunState.STOPPED else ""
    if not progress.is_cut:
        return f"{stopped}{progress_text(progress)}"
    about = "about " if progress.is_about else ""
    of = " of what was read" if stopped else ""
    why = " A broker does not tell where times go back." if about else ""
    read = progress_text(progress)
    return (
        f"{stopped}Shown are {about}the {which} {shown}{of}: {read}.{why} For more, narrow the search or download all."
    )


def _key_condition(record: ShownRecord) -> str:
    key = record.key or b""
    try:
        return f"key = {json.dumps(key.decode(), ensure_ascii=False)}"
    except UnicodeDecodeError:
        return f"key = 0x{key.hex()}"
