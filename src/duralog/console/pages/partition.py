"""`/topic/T/P`: the picture of a partition's log, the details of one segment, and the marked offsets.

The picture grows while records are written. Reading a segment for its codecs and records may take seconds on a worker
thread: it starts when the reader stays on a segment, one at a time, and the result is shown when it arrives.
"""

from __future__ import annotations

from nicegui import run, ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from duralog.console.drawing.partition_axis import AxisKind, suggested_axis
from duralog.console.drawing.partition_blocks import Block, Zone
from duralog.console.drawing.partition_figures import config_figures, headline, log_figures, offset_figures
from duralog.console.drawing.partition_picture import ZONE_WORDS, Picture, draw
from duralog.console.drawing.record_place import Place
from duralog.console.drawing.words import number_text, records_path
from duralog.console.facts.partitions import PartitionFacts
from duralog.console.pages.partition_frame import chosen_partition, partition_frame, show_when_read, soon
from duralog.console.pages.segment_details import SegmentDetails
from duralog.console.ui.elements import block, note_list, section, text
from duralog.console.ui.figures import FigureList
from duralog.console.ui.layout import Console, live
from duralog.console.ui.partition_elements import PictureElement
from duralog.console.ui.reader_zone import zone_here

_FIRST_WIDTH = 960
"""Until the browser has reported the width of the picture."""
_READ_AT_ONCE_BYTES = 32 << 20
"""An active segment up to this size is read when the page is opened."""
_DWELL_SECONDS = 0.25
"""A segment is read after the pointer rests on it for this long."""
_KEYS = (("← →", "on the picture: segment by segment"), ("Enter", "the records of the segment"))


def register(console: Console) -> None:
    @console.page("/topic/{topic}/{partition}")
    async def partition_page(topic: str, partition: str) -> None:
        number = chosen_partition(console, topic, partition)
        reading = await soon(console.source.partition, topic, number)
        with partition_frame(console, topic, number, "picture", _KEYS) as about:
            page = PartitionPage(console, topic, number, about)
            show_when_read(reading, page.show, about)
            live(page.refresh)


class PartitionPage:
    def __init__(self, console: Console, topic: str, partition: int, about: TextElement) -> None:
        self._source = console.source
        self._topic = topic
        self._partition = partition
        self._about = about
        self._zone = zone_here()
        self._facts: PartitionFacts | None = None
        self._kind: AxisKind | None = None
        self._width = float(_FIRST_WIDTH)
        self._chosen: int | None = None
        self._hovered: int | None = None
        self._picture: Picture | None = None
        self._build()

    def _build(self) -> None:
        self._notes = block("div", "notes-place")
        self._tiles = FigureList("", is_tiles=True)
        with block("section", "part picture-part", aria_label="Picture of the log"):
            with block("div", "picture-head"):
                self._legend = block("div", "legend", marker="legend")
                with block("div", "choices", role="group", aria_label="Scale of the picture") as self._choices:
                    self._switches = {kind: self._switch(kind) for kind in AxisKind}
            self._element = PictureElement(on_width=self._resized, on_look=self._look, on_open=self._open)
            self._hint = text("p", "", "hint", marker="picture-hint")
        self._details = SegmentDetails(self._source, self._topic, self._partition)
        with block("div", "columns"):
            with section("Offsets"):
                self._offsets = FigureList("offsets-rows")
            with section("Configs"):
                self._configs = FigureList("configs-rows", marker="configs")
                self._no_configs = text("p", "All of them are Kafka's defaults.", "about")

    def _switch(self, kind: AxisKind) -> Element:
        button = text("button", kind.capitalize(), type="button", aria_pressed="false", marker=f"axis-{kind}")
        return button.on("click", lambda: self._scale(kind))

    async def refresh(self) -> None:
        facts = await run.io_bound(self._source.partition, self._topic, self._partition)
        if facts is not None and facts != self._facts:
            self.show(facts)

    def show(self, facts: PartitionFacts) -> None:
        before, self._facts = self._facts, facts
        if self._kind is None:
            self._kind = suggested_axis(facts)
        self._about.text = headline(facts)
        if before is None or (before.notes, before.trouble) != (facts.notes, facts.trouble):
            self._notes.clear()
            if sentences := [*([facts.trouble] if facts.trouble else []), *facts.notes]:
                with self._notes:
                    note_list(sentences)
        self._tiles.show(log_figures(facts))
        self._offsets.show(offset_figures(facts, self._zone))
        configs = config_figures(facts)
        self._configs.show(configs)
        self._no_configs.set_visibility(not configs)
        self._draw()
        looked_at = self._chosen if self._chosen is not None else self._hovered
        is_small = bool(facts.segments) and facts.segments[-1].size_bytes <= _READ_AT_ONCE_BYTES
        self._look_at(looked_at, is_read=before is None and is_small)

    def _draw(self) -> None:
        if self._facts is None or self._kind is None:
            return
        picture = draw(self._facts, self._kind, self._width, zone=self._zone.zone, chosen=self._chosen)
        if self._picture is None or self._picture.zones != picture.zones:
            self._draw_legend(picture)
        self._picture = picture
        self._element.show(picture.svg)
        for kind, button in self._switches.items():
            button.props["aria-pressed"] = "true" if kind is picture.axis.kind else "false"
        self._choices.set_visibility(bool(self._facts.segments))
        self._hint.text = _hint(self._facts, picture)

    def _draw_legend(self, picture: Picture) -> None:
        self._legend.clear()
        with self._legend:
            for zone in picture.zones if picture.zones != (Zone.PLAIN,) else ():
                with block("span", "legend-entry"):
                    block("i", str(zone), aria_hidden="true")
                    text("span", ZONE_WORDS[zone])

    def _scale(self, kind: AxisKind) -> None:
        self._kind = kind
        self._draw()

    def _resized(self, width: int) -> None:
        if width != self._width:
            self._width = float(width)
            self._draw()

    def _look(self, base_offset: int, how: str) -> None:
        if how == "hover":
            # A segment that was selected by mouse or keyboard stays selected until it is clicked again.
            if self._chosen is None:
                self._hovered = base_offset
                self._look_at(base_offset, is_read=False)
                ui.timer(_DWELL_SECONDS, lambda: self._dwelt(base_offset), once=True)
            return
        self._chosen = None if how == "click" and self._chosen == base_offset else base_offset
        self._draw()
        self._look_at(base_offset, is_read=True)

    def _dwelt(self, base_offset: int) -> None:
        if self._chosen is None and self._hovered == base_offset:
            self._look_at(base_offset, is_read=True)

    def _look_at(self, base_offset: int | None, *, is_read: bool) -> None:
        found = self._block_at(base_offset)
        if found is not None and self._facts is not None:
            self._details.show(found, self._facts, is_read=is_read)

    def _block_at(self, base_offset: int | None) -> Block | None:
        if self._picture is None or not self._picture.blocks:
            return None
        if base_offset is None:
            return self._picture.blocks[-1]
        found = [block for block in self._picture.blocks if block.base_offset <= base_offset]
        return found[-1] if found else self._picture.blocks[0]

    def _open(self, base_offset: int) -> None:
        ui.navigate.to(records_path(self._topic, self._partition) + Place(offset=base_offset).query())


def _hint(facts: PartitionFacts, picture: Picture) -> str:
    if not facts.segments:
        return "Offsets only: segments are shown if the log directory is given."
    if facts.start_offset == facts.end_offset:
        return f"No records yet. The next one gets offset {number_text(facts.end_offset)}."
    if picture.axis.kind is AxisKind.BYTES:
        return "Widths are to scale in bytes. Hover over a segment, or use the arrow keys."
    return "Widths are to scale in offsets, heights in bytes per offset. Hover over a segment, or use the arrow keys."
