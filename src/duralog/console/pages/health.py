"""`/health`: problems, the process that has the directory open, a check of all files, the quarantine, and the cleaner.

A check changes nothing, so every reader may start one. It runs in the source: leaving the page does not end it, and
every reader of the page sees it.
"""

from __future__ import annotations

from nicegui import run, ui

from duralog.config.error_text import describe
from duralog.config.times import duration_text, now_ms
from duralog.console.drawing.health_items import cleaner_figures, health_items, shown_cleaner_rows, verdict
from duralog.console.drawing.words import (
    age_text,
    bytes_text,
    counted,
    number_text,
    partition_path,
    share_text,
)
from duralog.console.facts.health import HealthItem
from duralog.console.facts.overview import GroupDetails, Overview, PartitionRow
from duralog.console.facts.runs import FindingFacts, RunState, VerifyView
from duralog.console.pages.health_tables import cleaner_table, findings_table, items_table, quarantine_table
from duralog.console.source import UnknownGroup, VerifyRun
from duralog.console.ui.data_table import Cell
from duralog.console.ui.elements import block, empty_state, heading, note_list, section, text
from duralog.console.ui.layout import Console, live
from duralog.console.ui.standing import commands_place
from duralog.errors import DuralogError, UnknownTopic

_FAST_SECONDS = 0.5
_SLOW_SECONDS = 10.0
"""The refresh interval for facts that only recovery or repair changes."""
_MOST_GROUPS = 200
_BEGIN = "Check now"
_STOP = "Stop"


def register(console: Console) -> None:
    @console.page("/health")
    def health_page() -> None:
        with console.frame("Health", marker="page-health", here="health"):
            _HealthPage(console)


class _HealthPage:
    def __init__(self, console: Console) -> None:
        self._source = console.source
        self._quarantine: _Quarantine | None = None
        self._seen: Overview | None = None
        self._lagging: list[GroupDetails] = []
        heading("Health")
        with block("div", "verdict", marker="verdict", role="status"):
            self._dot = block("span", "dot", aria_hidden="true")
            self._verdict = text("span", "")
        with block("div", "part"):
            self._items = items_table()
        self._held_by = text("p", "", "about", marker="held-by")
        if self._source.has_files:
            _Check(console)
            self._quarantine = _Quarantine(console)
        else:
            empty_state(
                "A check of files and the quarantine need the directory of the broker. Show both:",
                f"duralog console {commands_place(self._source.overview())} --data DIR",
                marker="no-files",
            )
        if self._source.has_files or self._source.cleaner().metrics:
            _Cleaner(console)
        self.refresh()
        live(self.refresh)

    def refresh(self) -> None:
        overview = self._source.overview()
        items = self._found(overview)
        tone, self._verdict.text = verdict(items)
        self._dot.classes(replace=f"dot {tone}")
        self._items.show(items)
        self._items.set_visibility(bool(items))
        if self._source.has_files:
            self._held_by.text = (
                f"The directory is open for writing by {overview.held_by}."
                if overview.held_by
                else "No process has the directory open for writing."
            )

    def _found(self, overview: Overview) -> list[HealthItem]:
        check = self._source.verification()
        troubled = [topic.name for topic in overview.topics if topic.trouble is not None]
        if overview is not self._seen:
            self._seen, self._lagging = overview, self._lagging_groups(overview)
        return health_items(
            overview,
            [row for topic in troubled for row in self._rows(topic)],
            self._lagging,
            self._source.cleaner(),
            None if check is None else check.progress(),
            quarantined=0 if self._quarantine is None else self._quarantine.count,
            now_ms=now_ms(),
        )

    def _lagging_groups(self, overview: Overview) -> list[GroupDetails]:
        """Groups that may have a problem, as many as can be checked every few seconds."""
        found = []
        lagging = [facts for facts in overview.groups if facts.lag or facts.without_commit]
        for facts in sorted(lagging, key=lambda facts: -(facts.lag or 0))[:_MOST_GROUPS]:
            try:
                found.append(self._source.group(facts.name))
            except UnknownGroup:
                continue  # It has gone since.
        return found

    def _rows(self, topic: str) -> tuple[PartitionRow, ...]:
        try:
            return self._source.topic(topic)
        except UnknownTopic:
            return ()


class _Check:
    """`duralog verify` from the page."""

    def __init__(self, console: Console) -> None:
        self._source = console.source
        self._run: VerifyRun | None = None
        self._shown: VerifyView | None = None
        self._topics: frozenset[str] = frozenset()
        with section("Check of all files", "Reads every log and checks it against its indexes; changes nothing."):
            with block("div", "row"):
                # One button for both, so that it keeps the keyboard's focus.
                self._button = text("button", _BEGIN, "button", marker="verify", type="button")
                self._button.on("click", self._begin_or_stop)
                self._state = text("span", "", "about", marker="verify-result", role="status")
            self._bar = block("progress", marker="verify-progress", max="1", aria_label="Progress of the check")
            self._findings = findings_table(self._place_of)
        self.refresh()
        live(self.refresh, _FAST_SECONDS)

    def _begin_or_stop(self) -> None:
        if self._run is not None and self._run.progress().state == RunState.RUNNING:
            self._run.stop()
            return
        try:
            self._run = self._source.start_verify()
        except DuralogError as error:
            ui.notify(describe(error), type="warning", position="bottom")
        self.refresh()

    def refresh(self) -> None:
        self._run = self._source.verification()
        view = None if self._run is None else self._run.progress()
        if view == self._shown and view is not None:
            return
        self._shown = view
        is_running = view is not None and view.state == RunState.RUNNING
        self._button.text = _STOP if is_running else _BEGIN
        self._bar.set_visibility(is_running)
        self._findings.set_visibility(view is not None and bool(view.findings))
        if view is None:
            self._state.text = "No check was made since the console was started."
            return
        self._bar.props["value"] = f"{view.share:.4f}"
        self._state.text = _check_sentence(view)
        self._topics = frozenset(topic.name for topic in self._source.overview().topics)
        self._findings.show(view.findings)

    def _place_of(self, finding: FindingFacts) -> Cell:
        """With a link where there is a page: the metadata log has none."""
        if finding.topic is None or finding.partition is None or finding.topic not in self._topics:
            return finding.file
        return {"text": finding.file, "href": partition_path(finding.topic, finding.partition)}


class _Quarantine:
    def __init__(self, console: Console) -> None:
        self._source = console.source
        self.count = 0
        with section("Quarantine", marker="quarantine-part"):
            self._note = text("p", "Reading the quarantine …", "about loading", marker="quarantine-note")
            self._table = quarantine_table()
            self._table.set_visibility(False)
        ui.timer(0, self._load, once=True)
        live(self._load, _SLOW_SECONDS)

    async def _load(self) -> None:
        try:
            entries = await run.io_bound(self._source.quarantine)
        except (DuralogError, OSError) as error:
            self._note.text = describe(error)
            return
        finally:
            self._note.classes(remove="loading")
        self._note.text = (
            "Bytes that recovery or repair removed from a log, and kept." if entries else "Nothing is in quarantine."
        )
        self.count = len(entries or ())
        self._table.show(entries or ())
        self._table.set_visibility(bool(entries))


class _Cleaner:
    def __init__(self, console: Console) -> None:
        self._source = console.source
        with section("Cleaner", marker="cleaner-part"):
            self._summary = text("p", "", "about", marker="cleaner-summary")
            self._metrics = block("dl", "facts", marker="cleaner-metrics")
            self._notes = block("div")
            self._table = cleaner_table()
        self._shown_notes: tuple[str, ...] | None = None
        self._measured: dict[str, float] | None = None
        self.refresh()
        live(self.refresh)

    def refresh(self) -> None:
        facts = self._source.cleaner()
        self._summary.text = (
            f"{counted(facts.partitions, 'compacted partition')}, {number_text(facts.due)} due for compaction."
            f"{_and_hidden(len(facts.rows) - len(shown_cleaner_rows(facts.rows)))} The dirtiest first."
            if facts.partitions
            else "No partition here is compacted."
        )
        rows = shown_cleaner_rows(facts.rows)
        self._table.show(rows)
        self._table.set_visibility(bool(rows))
        if facts.notes != self._shown_notes:
            self._shown_notes = facts.notes
            self._notes.clear()
            if facts.notes:
                with self._notes:
                    note_list(facts.notes, marker="cleaner-notes")
        if dict(facts.metrics) != self._measured:
            self._measured = dict(facts.metrics)
            self._metrics.clear()
            with self._metrics:
                for name, label, figure in cleaner_figures(self._measured):
                    with block("div", title=f"duralog_{name}"):
                        text("dt", label)
                        text("dd", figure)
            self._metrics.set_visibility(bool(self._measured))


def _and_hidden(count: int) -> str:
    return f" {counted(count, 'partition')} of internal topics not due, not listed." if count else ""


def _check_sentence(view: VerifyView) -> str:
    what = "" if view.topic is None else f" of {view.topic}" + ("" if view.partition is None else f"-{view.partition}")
    read = f"{bytes_text(view.bytes_done)} in {duration_text(round(view.seconds * 1000))}"
    partitions = counted(view.partitions_total, "partition")
    if view.partitions_done < view.partitions_total:
        partitions = f"{number_text(view.partitions_done)} of {partitions}"
    found = "no errors" if not view.errors else counted(view.errors, "error")
    if view.state == RunState.RUNNING:
        where = f", at {view.current}" if view.current else ""
        return f"Checking{what}: {share_text(view.share)}, {partitions}{where}; {found} so far"
    if view.state == RunState.FAILED:
        return f"The check{what} failed: {view.error or 'unknown reason'}"
    ended = "stopped" if view.state == RunState.STOPPED else "done"
    return f"Check{what} {ended} {age_text(view.started_ms)}: {found} in {partitions}, {read}"
