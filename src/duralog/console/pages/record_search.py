"""The line of a search by key: its progress, and buttons to stop and continue it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from nicegui import run, ui

from duralog.console.drawing.record_place import Place, parse_key
from duralog.console.drawing.shown_bytes import visible
from duralog.console.drawing.words import bytes_text, counted, number_text
from duralog.console.facts.records import ShownRecord
from duralog.console.facts.runs import RunState
from duralog.console.source import KeySearch, Source
from duralog.console.ui.elements import block, text
from duralog.console.ui.layout import live
from duralog.errors import DuralogError

_REFRESH_SECONDS = 0.25
_LONGEST_KEY = 60

Show = Callable[[tuple[ShownRecord, ...], str, bool], None]
"""The records found so far, a message about them, and whether the search has ended."""


class RecordSearch:
    def __init__(
        self, source: Source, topic: str, partition: int, show: Show, go: Callable[[Place], Awaitable[None]]
    ) -> None:
        self._source = source
        self._topic = topic
        self._partition = partition
        self._show = show
        self._go = go
        self._search: KeySearch | None = None
        self._place = Place()
        self._next = 0
        self._known: dict[int, ShownRecord] = {}
        with block("div", "search-line", marker="search-line") as self._line:
            self._bar = block("progress", max="1", value="0", marker="search-progress", aria_label="Searched so far")
            self._stop = text("button", "Stop", "quiet-button", type="button", marker="search-stop")
            self._stop.on("click", self.stop)
            self._on = text("button", "Search on", "quiet-button", type="button", marker="search-on")
            self._on.on("click", self._go_on)
        self.hide()
        live(self._refresh, _REFRESH_SECONDS)
        # Only a few may run: one without a page would keep others from starting.
        ui.context.client.on_delete(self.stop)

    def start(self, place: Place) -> None:
        """`place` has a key, and maybe an offset to start from."""
        self._place = place
        self._known = {}
        try:
            self._search = self._source.find_key(
                self._topic, self._partition, parse_key(place.key or ""), from_offset=place.offset
            )
        except DuralogError as error:
            self._show((), str(error), True)
            return
        self._line.set_visibility(True)
        self._on.set_visibility(False)
        self._stop.set_visibility(True)

    def stop(self) -> None:
        if self._search is not None:
            self._search.stop()

    def hide(self) -> None:
        self._search = None
        self._line.set_visibility(False)

    async def _refresh(self) -> None:
        search = self._search
        if search is None:
            return
        progress = search.progress()
        found = await run.io_bound(self._decoded, search.found())
        if found is None or search is not self._search:
            return
        self._bar.props["value"] = f"{progress.share:.3f}"
        is_over = progress.state is not RunState.RUNNING
        name = visible(self._place.key or "")
        name = name if len(name) <= _LONGEST_KEY else f"{name[:_LONGEST_KEY]}…"
        read = f"{counted(progress.records_read, 'record')}, {bytes_text(progress.bytes_read)} read"
        if progress.error is not None:
            sentence = progress.error
        elif not is_over:
            sentence = f"Looking for {name}: {counted(len(found), 'record')} found, {read} …"
        elif progress.state is RunState.STOPPED:
            sentence = (
                f"{counted(len(found), 'record')} with key {name} up to offset {number_text(progress.offset)}: {read}"
            )
        else:
            sentence = f"{counted(len(found), 'record')} with key {name}: {read}"
        self._show(found, sentence, is_over)
        if is_over:
            self._search = None
            self._next = progress.offset
            self._stop.set_visibility(False)
            self._on.set_visibility(progress.state is RunState.STOPPED)
            self._line.set_visibility(progress.state is RunState.STOPPED)

    def _decoded(self, found: tuple[ShownRecord, ...]) -> tuple[ShownRecord, ...]:
        """On a worker thread. Records that were found earlier are decoded already."""
        more = [record for record in found if record.offset not in self._known]
        for record in self._source.payloads.decoded(self._topic, self._partition, more):
            self._known[record.offset] = record
        return tuple(self._known[record.offset] for record in found)

    async def _go_on(self) -> None:
        await self._go(replace(self._place, offset=self._next, opened=None))
