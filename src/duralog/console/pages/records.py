"""`/topic/T/P/records`: the records of a partition, by page, from an offset or a time on, by key, or live.

The address says what is shown (`duralog.console.drawing.record_place`): it can be shared, and the back button works.
Longer work runs on a worker thread; the result for a page that was left is dropped.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qsl

from nicegui import background_tasks, run, ui
from nicegui.elements.mixins.text_element import TextElement
from starlette.requests import Request

from duralog.config.error_text import describe, printable
from duralog.config.times import now_ms
from duralog.console.drawing.record_place import NotAPlace, Place, parse_when, place_of
from duralog.console.drawing.record_rows import row_of
from duralog.console.drawing.topic_place import TopicPlace
from duralog.console.drawing.words import counted, number_text, records_path, topic_records_path
from duralog.console.facts.records import RecordPage, ShownRecord
from duralog.console.pages.partition_frame import chosen_partition, partition_frame
from duralog.console.pages.record_formats import RecordFormats
from duralog.console.pages.record_search import RecordSearch
from duralog.console.pages.record_tools import RecordTools
from duralog.console.pages.record_view import RecordView
from duralog.console.ui.elements import block, text
from duralog.console.ui.layout import Console, live
from duralog.console.ui.partition_elements import RecordList
from duralog.console.ui.reader_zone import zone_here
from duralog.errors import DuralogError

MOST_FOLLOWED = 200
"""Rows that are kept while following; older ones are removed from the page."""
_FOLLOW_SECONDS = 1.0
_KEYS = (
    ("j k", "next and previous record"),
    ("Enter", "open the record"),
    ("n p", "newer and older page"),
    ("f", "follow the tail"),
    ("Esc", "close the record"),
)


def register(console: Console) -> None:
    @console.page("/topic/{topic}/{partition}/records")
    async def records_page(topic: str, partition: str, request: Request) -> None:
        number = chosen_partition(console, topic, partition)
        with partition_frame(console, topic, number, "records", _KEYS) as about:
            browser = RecordBrowser(console, topic, number, about)
            await browser.begin(dict(request.query_params))


class RecordBrowser:
    def __init__(self, console: Console, topic: str, partition: int, about: TextElement) -> None:
        self._source = console.source
        self._topic = topic
        self._partition = partition
        self._about = about
        self._zone = zone_here()
        self._place = Place()
        self._page: RecordPage | None = None
        self._records: dict[int, ShownRecord] = {}
        self._turn = 0
        """The number of the newest request: results of earlier ones are dropped."""
        self._is_away = False
        self._tools = RecordTools(
            self._go,
            self._turn_page,
            self._follow,
            topic_records_path(topic) + TopicPlace(partitions=str(partition)).query(),
        )
        self._formats = RecordFormats(console.source, topic)
        self._search = RecordSearch(console.source, topic, partition, self._show_found, self._go)
        self._problem = text("p", "", "problem-line tone bad", marker="problem-line", role="alert")
        self._note = text("p", "", "about note-line", marker="record-note")
        with block("div", "records-area") as self._area:
            self._list = RecordList(
                label=f"Records of {topic}-{partition}",
                on_open=self._open,
                on_turn=self._turn_page,
                on_follow=self._follow,
                on_scrolled=self._scrolled,
                on_place=self._came_back,
            )
            self._list.show(zone=self._zone.name)
            self._view = RecordView(console, topic, on_close=lambda: self._open(None), say=self._say)
        live(self._tail, _FOLLOW_SECONDS)

    async def begin(self, query: dict[str, str]) -> None:
        self._say("")
        try:
            place = place_of(query)
        except NotAPlace as error:
            self._say(str(error))
            place = Place()
        self._tools.show_place(place)
        background_tasks.create(self._load(place), name="records", context=self._area)

    async def _came_back(self, query: str) -> None:
        """The browser's back and forward buttons."""
        try:
            place = place_of(dict(parse_qsl(query.removeprefix("?"))))
        except NotAPlace:
            place = Place()
        await self._load(place)

    async def _go(self, place: Place) -> None:
        """Shows another part of the log, and updates the address."""
        if place != self._place:
            ui.navigate.history.push(records_path(self._topic, self._partition) + place.query())
        await self._load(place)

    async def _load(self, place: Place) -> None:
        self._turn += 1
        turn = self._turn
        self._place = place
        # At once: it belongs to a record that was shown before.
        self._view.close()
        self._search.stop()
        self._tools.show_place(place)
        self._list.show(following=place.is_followed, opened=None if place.opened is None else str(place.opened))
        if place.key is not None:
            self._page = None
            self._show(())
            self._list.show(busy=True, waiting="Searching …")
            self._search.start(place)
            if place.opened is not None:
                await self._open(place.opened)
            return
        self._search.hide()
        self._list.show(busy=True, waiting="Reading records …")
        try:
            page = await run.io_bound(self._read, place)
        except (DuralogError, OSError, NotAPlace) as error:
            if turn == self._turn:
                self._say(printable(describe(error)))
                self._list.show(busy=False, rows=[], empty="The records cannot be read.")
            return
        if page is not None and turn == self._turn:
            self._show_page(page)
            await self._formats.refresh()
            if place.opened is not None and turn == self._turn:
                await self._open(place.opened)

    def _read(self, place: Place) -> RecordPage:
        """On a worker thread."""
        time_ms = None if place.time is None else parse_when(place.time, now_ms=now_ms())
        is_newest = place.offset is None and time_ms is None
        page = self._source.records(
            self._topic,
            self._partition,
            offset=place.offset,
            time_ms=time_ms,
            backwards=place.is_backwards or is_newest,
        )
        return self._decoded(page)

    def _decoded(self, page: RecordPage) -> RecordPage:
        """On a worker thread."""
        return replace(page, records=self._source.payloads.decoded(self._topic, self._partition, page.records))

    def _read_tail(self, from_offset: int) -> RecordPage:
        """On a worker thread."""
        return self._decoded(self._source.tail(self._topic, self._partition, from_offset))

    def _show_page(self, page: RecordPage) -> None:
        self._page = page
        self._show(page.records)
        self._note.text = page.note or ""
        self._tools.show_page(page)
        span = page.end_offset - page.start_offset
        if not span:
            empty = f"No records yet. The next one gets offset {number_text(page.end_offset)}."
        elif page.is_at_end and not page.records:
            empty = f"Nothing from here on: the log ends at offset {number_text(page.end_offset)}."
        else:
            empty = "No records in these offsets: compaction has removed them. See newer or older pages."
        self._list.show(empty=empty)
        self._show_place()

    def _show_place(self) -> None:
        if self._page is None:
            return
        page, shown = self._page, len(self._records)
        is_paused = self._place.is_followed and (self._is_away or self._place.opened is not None)
        self._list.show(paused="Paused while you read. Resume" if is_paused else "")
        where = (
            f"{counted(shown, 'record')} of offsets {number_text(page.start_offset)} to {number_text(page.end_offset)}"
        )
        if not self._place.is_followed:
            self._about.text = where
        elif is_paused:
            self._about.text = f"Paused at offset {number_text(page.next_offset)}."
        else:
            self._about.text = f"Following, newest first: {where}"

    def _show(self, records: tuple[ShownRecord, ...]) -> None:
        self._records = {record.offset: record for record in records}
        rows = [row_of(record, self._zone) for record in records]
        if self._place.is_newest_first:
            rows.reverse()
        self._list.show(rows=rows, busy=False, descending=self._place.is_newest_first)

    def _show_found(self, records: tuple[ShownRecord, ...], sentence: str, is_over: bool) -> None:
        """A search has found more, or has ended."""
        if len(records) != len(self._records):
            self._show(records)
        self._about.text = sentence
        self._list.show(busy=not is_over, empty="No record has this key." if is_over else "")

    async def _turn_page(self, is_newer: bool) -> None:
        page = self._page
        if page is None:
            return
        if not is_newer:
            if page.previous_offset is None:
                ui.notify("That is the start of the log.", position="bottom", timeout=1500)
            else:
                await self._go(Place(offset=page.previous_offset, is_backwards=True))
        elif page.is_at_end:
            ui.notify("That is the end of the log: f follows it.", position="bottom", timeout=1500)
        else:
            await self._go(Place(offset=page.next_offset))

    async def _follow(self) -> None:
        await self._go(Place() if self._place.is_followed else Place(is_followed=True))

    def _scrolled(self, is_away: bool) -> None:
        self._is_away = is_away
        self._show_place()

    async def _tail(self) -> None:
        page, turn = self._page, self._turn
        if not self._place.is_followed or page is None or self._is_away or self._place.opened is not None:
            return
        more = await run.io_bound(self._read_tail, page.next_offset)
        if more is None or turn != self._turn:
            return
        self._page = replace(more, records=())
        if more.records:
            kept = (*self._records.values(), *more.records)[-MOST_FOLLOWED:]
            self._show(kept)
        self._tools.show_page(more)
        self._note.text = more.note or ""
        self._show_place()

    async def _open(self, offset: int | None) -> None:
        if offset != self._place.opened:
            self._place = self._place.opening(offset)
            ui.navigate.history.replace(records_path(self._topic, self._partition) + self._place.query())
        self._list.show(opened=None if offset is None else str(offset))
        self._show_place()
        if offset is None:
            self._view.close()
        else:
            await self._view.open(self._partition, offset, self._records.get(offset))

    def _say(self, sentence: str) -> None:
        self._problem.text = sentence
        self._problem.set_visibility(bool(sentence))
