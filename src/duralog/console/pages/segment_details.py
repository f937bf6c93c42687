"""The details of a segment: its files and indexes at once, its batches and codecs after they were read.

Reading takes a worker thread. One segment is read at a time; if the reader chooses others meanwhile, the last of
them is read next.
"""

from __future__ import annotations

from functools import partial

from nicegui import background_tasks

from duralog.config.error_text import describe, printable
from duralog.console.drawing.partition_blocks import Block
from duralog.console.drawing.partition_figures import group_figures, scan_figures, segment_figures
from duralog.console.drawing.record_place import Place
from duralog.console.drawing.words import bytes_text, counted, number_text, records_path, share_text
from duralog.console.facts.partitions import PartitionFacts, SegmentFacts, SegmentScan
from duralog.console.source import Source
from duralog.console.ui.elements import block, text
from duralog.console.ui.figures import FigureList
from duralog.console.ui.long_reading import read_long
from duralog.console.ui.reader_zone import zone_here
from duralog.errors import DuralogError

_MOST_LISTED = 60
_READ_AGAIN_BYTES = 8 << 20
"""A segment that grows is read again and again up to this size."""


class SegmentDetails:
    def __init__(self, source: Source, topic: str, partition: int) -> None:
        self._source = source
        self._topic = topic
        self._partition = partition
        self._zone = zone_here()
        self._looked_at: SegmentFacts | None = None
        self._built_for: tuple[int, ...] = ()
        self._scan: SegmentScan | None = None
        self._wanted: SegmentFacts | None = None
        self._is_reading = False
        with block("section", "part segment-details", marker="segment-details") as self._section:
            with block("div", "details-head"):
                self._title = text("h2", "")
                self._tag = text("span", "", "chip")
                block("span", "room")
                self._records = text("a", "Records", "quiet-button", marker="segment-records")
                self._read = text("button", "Read the segment", "quiet-button", type="button", marker="segment-read")
                self._read.on("click", lambda: self._read_now())
            self._trouble = text("p", "", "tone bad")
            self._listed = block("div", "segment-list")
            self._figures = FigureList("details-figures")
            with block("div", "details-columns"):
                self._files = block("div", "files", marker="segment-files")
                with block("div", "scan", marker="segment-scan"):
                    self._state = text("p", "", "about", marker="scan-state")
                    self._mix = block("div", "mix")
                    self._scanned = FigureList("scan-figures")
        self._section.set_visibility(False)

    def show(
        self, shown: Block, facts: PartitionFacts, *, base_offset: int | None = None, is_read: bool = False
    ) -> None:
        """A block of the picture: its only segment, the one with this base offset, or a summary of all."""
        self._section.set_visibility(True)
        segment = next((one for one in shown.segments if one.base_offset == base_offset), None)
        if len(shown.segments) == 1:
            segment = shown.segments[0]
        self._list(shown, facts, segment)
        if segment is None:
            self._looked_at = None
            self._title.text = f"{counted(len(shown.segments), 'segment')} too thin to be drawn separately"
            self._tag.set_visibility(False)
            self._figures.show(group_figures(shown, self._zone))
            self._show_link(shown.base_offset)
            self._files.clear()
            self._show_scan(None, "")
            self._trouble.text = shown.trouble or ""
            return
        is_same = self._looked_at is not None and self._looked_at.base_offset == segment.base_offset
        before, self._looked_at = self._looked_at, segment
        self._title.text = f"Segment {number_text(segment.base_offset)}"
        self._tag.text = "active" if segment.is_active else "clean" if segment.is_clean else "closed"
        self._tag.set_visibility(True)
        self._trouble.text = segment.trouble or ""
        self._show_link(segment.base_offset)
        self._figures.show(segment_figures(segment, self._zone))
        if not is_same or before is None or before.files != segment.files:
            self._show_files(segment)
        known = self._source.known_scan(self._topic, self._partition, segment.base_offset)
        if known is not None:
            self._show_scan(known, "")
        elif not segment.size_bytes:
            self._show_scan(None, "Nothing was written to it yet.")
        elif is_read:
            self._read_now()
        elif is_same and self._scan is not None and segment.size_bytes <= _READ_AGAIN_BYTES:
            # It has grown: what is shown stays until it was read again.
            self._read_soon(segment)
        elif not is_same:
            self._show_scan(None, "Its records were not read yet.")

    def _show_link(self, offset: int) -> None:
        self._records.props["href"] = records_path(self._topic, self._partition) + Place(offset=offset).query()

    def _list(self, shown: Block, facts: PartitionFacts, chosen: SegmentFacts | None) -> None:
        """The segments of a block that has several, each of them a button."""
        bases = tuple(one.base_offset for one in shown.segments[:_MOST_LISTED])
        wanted = bases if len(shown.segments) > 1 else ()
        if wanted != self._built_for:
            self._built_for = wanted
            self._listed.clear()
            with self._listed:
                for segment in shown.segments[:_MOST_LISTED] if wanted else ():
                    self._segment_button(segment, shown, facts)
                if wanted and len(shown.segments) > _MOST_LISTED:
                    text("span", f"and {number_text(len(shown.segments) - _MOST_LISTED)} more", "below")
        for child, base in zip(self._listed.default_slot.children, wanted, strict=False):
            is_chosen = chosen is not None and chosen.base_offset == base
            child.props["aria-pressed"] = "true" if is_chosen else "false"

    def _segment_button(self, segment: SegmentFacts, shown: Block, facts: PartitionFacts) -> None:
        def look() -> None:
            self.show(shown, facts, base_offset=segment.base_offset, is_read=True)

        text(
            "button", number_text(segment.base_offset), "chip", type="button", title=bytes_text(segment.size_bytes)
        ).on("click", look)

    def _show_files(self, segment: SegmentFacts) -> None:
        self._files.clear()
        with self._files, block("table", "plain"), block("tbody"):
            for name, size in segment.files:
                with block("tr"):
                    text("th", name, "mono", scope="row")
                    text("td", bytes_text(size), "number")

    def _show_scan(self, scan: SegmentScan | None, state: str) -> None:
        self._scan = scan
        self._state.text = (scan.trouble or "") if scan is not None else state
        self._state.set_visibility(bool(self._state.text))
        self._read.set_visibility(
            scan is None and self._looked_at is not None and self._looked_at.size_bytes > 0 and self._wanted is None
        )
        self._mix.clear()
        if scan is None or self._looked_at is None:
            self._scanned.show(())
            return
        with self._mix:
            with block("div", "mix-bar", aria_hidden="true"):
                for place, share in enumerate(scan.codecs.values()):
                    block("i", f"codec-{min(place, 4)}").style(f"flex-grow: {share:.4f}")
            with block("p", "mix-words", marker="scan-codecs"):
                for place, (codec, share) in enumerate(scan.codecs.items()):
                    block("i", f"codec-{min(place, 4)}", aria_hidden="true")
                    text("span", f"{codec} {share_text(share)}")
        self._scanned.show(scan_figures(scan))

    def _read_now(self) -> None:
        if self._looked_at is not None:
            self._wanted = self._looked_at
            self._show_scan(None, "Reading the segment …")
            self._read_soon(self._looked_at)

    def _read_soon(self, segment: SegmentFacts) -> None:
        self._wanted = segment
        if not self._is_reading:
            self._is_reading = True
            background_tasks.create(self._read_wanted(), name="read a segment", context=self._section)

    async def _read_wanted(self) -> None:
        try:
            while (segment := self._wanted) is not None and not self._section.is_deleted:
                self._wanted = None
                await self._read_one(segment)
        finally:
            self._is_reading = False

    async def _read_one(self, segment: SegmentFacts) -> None:
        scan_segment = partial(self._source.scan_segment, self._topic, self._partition, segment.base_offset)
        try:
            scan = await read_long(self._section, lambda is_wanted: scan_segment(is_wanted=is_wanted))
            state = ""
        except (DuralogError, OSError) as error:
            scan, state = None, printable(describe(error))
        looked_at = self._looked_at
        if looked_at is not None and looked_at.base_offset == segment.base_offset and not self._section.is_deleted:
            self._show_scan(scan, state)
