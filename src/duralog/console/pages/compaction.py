"""`/topic/T/P/compaction`: what a compaction would do to a log and why, a run of it, and the size over time.

The explanation is what `duralog compact --explain` prints, line for line. It reads the whole log on a worker thread;
for a large log, only on request. A run changes files, so it needs `--allow-changes`, a log that no other process has
open, and a second click; otherwise the page shows the command to type.
"""

from __future__ import annotations

from functools import partial

from nicegui import background_tasks, run
from nicegui.elements.mixins.text_element import TextElement

from duralog.config.error_text import describe, printable
from duralog.console.drawing.compaction_figures import BarPart, cleaner_figures, rehearsal_bars, zone_bar
from duralog.console.drawing.partition_figures import headline
from duralog.console.drawing.words import bytes_text
from duralog.console.facts.partitions import PartitionFacts
from duralog.console.facts.runs import Rehearsal
from duralog.console.pages.compaction_run import CompactionRunPart
from duralog.console.pages.partition_frame import chosen_partition, partition_frame, show_when_read, soon
from duralog.console.ui.charts import TimeChart
from duralog.console.ui.elements import block, copy_button, section, text
from duralog.console.ui.figures import FigureList, draw_bar
from duralog.console.ui.layout import Console, live
from duralog.console.ui.long_reading import read_long
from duralog.errors import DuralogError

_EXPLAINED_AT_ONCE_BYTES = 1 << 30
_LABEL, _INDENT = 12, 14
"""How wide a label is at the start of a line, and where its text begins."""
_EXPLANATION = "document.querySelector('[data-testid=explanation]')"


def register(console: Console) -> None:
    @console.page("/topic/{topic}/{partition}/compaction")
    async def compaction_page(topic: str, partition: str) -> None:
        number = chosen_partition(console, topic, partition)
        reading = await soon(console.source.partition, topic, number)
        with partition_frame(console, topic, number, "compaction") as about:
            page = CompactionPage(console, topic, number, about)
            show_when_read(reading, page.show, about)
            live(page.refresh)


class CompactionPage:
    def __init__(self, console: Console, topic: str, partition: int, about: TextElement) -> None:
        self._source = console.source
        self._topic = topic
        self._partition = partition
        self._about = about
        self._facts: PartitionFacts | None = None
        self._is_explaining = False
        self._bar_shown: list[BarPart] = []
        self._figures = FigureList("", is_tiles=True, marker="cleaner-state")
        with section("What would happen") as self._explained:
            self._bar = block("div", "outcome", marker="zone-bar")
            self._outcome = block("div", "outcome", marker="outcome")
            with block("div", "row explain-head"):
                self._state = text("p", "", "about", marker="explanation-state", role="status")
                block("span", "room")
                self._again = text("button", "Explain", "quiet-button", type="button", marker="explain")
                self._again.on("click", self._explain_now)
                self._copy = copy_button(_EXPLANATION, aria_label="Copy the explanation")
            self._text = block("pre", "explanation", marker="explanation", tabindex="0")
        self._run = CompactionRunPart(console, topic, partition, when_over=self._explain_now)
        with section("Size over time", "Since the console was started."):
            self._chart = TimeChart("Size of the log", unit="size", marker="chart-size")
        self._text.set_visibility(False)
        self._copy.set_visibility(False)
        self._show_state("")

    async def refresh(self) -> None:
        facts = await run.io_bound(self._source.partition, self._topic, self._partition)
        if facts is not None and facts != self._facts:
            self.show(facts)

    def show(self, facts: PartitionFacts) -> None:
        is_first = self._facts is None
        self._facts = facts
        self._about.text = headline(facts)
        is_compacted = facts.first_dirty_offset is not None
        self._figures.show(cleaner_figures(facts) if is_compacted else ())
        is_policy = "compact" in facts.policy.split(",")
        self._run.set_visibility(is_policy)
        self._again.set_visibility(is_policy and self._source.has_files)
        if (bar := zone_bar(facts)) != self._bar_shown:
            self._bar_shown = bar
            self._bar.clear()
            with self._bar:
                draw_bar("The log now", bar)
        self._chart.show([(sample.at_ms, sample.size_bytes) for sample in facts.history])
        if is_first:
            if (facts.size_bytes or 0) <= _EXPLAINED_AT_ONCE_BYTES:
                self._explain_now()
            else:
                self._show_state(f"It reads the log, all {bytes_text(facts.size_bytes)} of it.")

    def _explain_now(self) -> None:
        if not self._is_explaining:
            self._is_explaining = True
            self._again.props["disabled"] = True
            self._show_state("Reading the log …")
            background_tasks.create(self._explain(), name="explain a compaction", context=self._explained)

    async def _explain(self) -> None:
        rehearse = partial(self._source.rehearsal, self._topic, self._partition)
        try:
            rehearsal = await read_long(self._explained, lambda is_wanted: rehearse(is_wanted=is_wanted))
            if rehearsal is not None and not self._explained.is_deleted:
                self._show_rehearsal(rehearsal)
        except (DuralogError, OSError) as error:
            self._show_state(printable(describe(error)))
        finally:
            self._is_explaining = False
            self._again.props.pop("disabled", None)
            self._again.text = "Explain again"

    def _show_rehearsal(self, rehearsal: Rehearsal) -> None:
        self._show_state("As duralog compact --explain prints it.")
        self._outcome.clear()
        with self._outcome:
            for name, bar in rehearsal_bars(rehearsal):
                draw_bar(name, bar)
        explanation = rehearsal.text
        self._text.clear()
        with self._text:
            for place, line in enumerate(explanation.removesuffix("\n").split("\n")):
                _line(line, is_first=place == 0)
        self._text.set_visibility(True)
        self._copy.set_visibility(True)

    def _show_state(self, sentence: str) -> None:
        self._state.text = sentence


def _line(line: str, *, is_first: bool) -> None:
    """As it is printed; a label and its text are apart, so that a narrow page can put one below the other."""
    kind = line_class(line, is_first=is_first)
    if kind != "fact":
        text("span", f"{line}\n", f"line {kind}")
        return
    with block("span", "line fact"):
        text("span", line[:_INDENT], "label" if line[:_INDENT].strip() else "label blank")
        text("span", f"{line[_INDENT:]}\n", "rest")


def line_class(line: str, *, is_first: bool) -> str:
    """How a line is wrapped and coloured: the heading, a label with its text, damage, advice."""
    if line.startswith("!"):
        return "damage"
    if line.startswith("#"):
        return "advice"
    if line[_LABEL:_INDENT] == "  ":
        return "fact"
    return "title" if is_first else "plain"
