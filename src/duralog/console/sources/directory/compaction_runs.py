"""Compactions from the page, and their explanations, by the use cases of `duralog compact`.

A run opens the directory for writing, so it is refused while a broker has it open. It cannot be stopped or undone. One
run at a time.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from duralog.cli.compact.facts import DUE_ADVICE, ExplanationText, summary_line
from duralog.cli.voice.tables import fact_line
from duralog.config import BrokerConfig, TopicConfig
from duralog.config.error_text import describe_any, printable
from duralog.config.progress import Progress
from duralog.console.facts.runs import CompactionResult, CompactionView, Rehearsal, RunState
from duralog.errors import InvalidConfig, StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import Choice
from duralog.operations.compact import CompactRequest, compact
from duralog.operations.compacted_logs import LogsToCompact, NotCompacted, PartitionProgress
from duralog.operations.explain import ExplainRequest, ExplanationTotals, explain
from duralog.reports.compact import LogSize, PartitionCompaction
from duralog.storage.compaction.preview import Explanation
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.disk.background import Clock
from duralog.storage.log.retention import COMPACT

_OPENING, _CLOSING, _DONE = "opening", "closing", "done"


def compaction_command(path: str, place: TopicPartition) -> str:
    return shlex.join(["duralog", "compact", path, "--topic", place.topic, "--partition", str(place.partition)])


def check_compacted(topic: str, config: TopicConfig) -> None:
    if COMPACT not in config.cleanup_policy:
        raise not_compacted(NotCompacted(topic, config.text("cleanup.policy") or "empty"))


def not_compacted(error: NotCompacted) -> InvalidConfig:
    return InvalidConfig(f"{error}: duralog topic alter --config cleanup.policy=compact makes it so")


def rehearse(
    path: str, config: BrokerConfig, place: TopicPartition, clock: Clock, why_stop: Callable[[], str | None]
) -> Rehearsal:
    """Reads the whole log, unless it is stopped. Raises `InvalidConfig` if the topic is not compacted."""

    def check_wanted(_: Progress) -> None:
        if (why := why_stop()) is not None:
            # Not a `DuralogError`: that means a log that has changed, which would be read once more.
            raise InterruptedError(why)

    now_ms = clock()
    try:
        report = explain(ExplainRequest(logs=_log(path, place, config), now_ms=now_ms), on_progress=check_wanted)
    except NotCompacted as error:
        raise not_compacted(error) from None
    (done,) = report.partitions
    if done.explanation is None:
        raise StorageError(f"{place} cannot be explained: {done.failure}")
    lines = _lines(done.explanation, done.config, report.totals, now_ms)
    return _rehearsal(done.explanation, "".join(f"{line}\n" for line in lines))


def _log(path: str, place: TopicPartition, config: BrokerConfig) -> LogsToCompact:
    return LogsToCompact(path=path, choice=Choice([place.topic], place.partition), config=config)


def _lines(explanation: Explanation, config: TopicConfig, totals: ExplanationTotals, now_ms: int) -> Iterator[str]:
    """The lines that `duralog compact --explain` prints."""
    text = ExplanationText.of(explanation, config, now_ms)
    yield text.heading
    for label, fact in text.facts:
        yield fact_line(label, fact)
    for damage in text.damage:
        yield f"! {printable(damage)}"
    for advice in text.advice:
        yield f"# {printable(f'{explanation.topic}-{explanation.partition}')}: {printable(advice)}"
    yield ""
    yield summary_line(totals)
    if totals.due:
        yield DUE_ADVICE


def _rehearsal(explanation: Explanation, text: str) -> Rehearsal:
    dirty, report = explanation.dirty, explanation.report
    known = Rehearsal(
        text=text,
        is_due=dirty.is_eligible,
        size_bytes=explanation.size_bytes,
        clean_bytes=dirty.clean_bytes,
        cleanable_bytes=dirty.cleanable_bytes,
        would_run=report is not None,
    )
    if report is None:
        return known
    return replace(
        known,
        records_before=report.records_before,
        records_after=report.records_after,
        bytes_before=report.bytes_before,
        bytes_after=report.bytes_after,
        segments_before=report.segments_before,
        segments_after=report.segments_after,
        superseded_records=report.superseded_records,
        expired_tombstones=report.expired_tombstones,
        keyless_records=report.keyless_records,
        aborted_records=report.aborted_records,
        spent_markers=explanation.spent_markers,
    )


class DirectoryCompaction:
    """One compaction of one partition, on its own thread."""

    def __init__(self, path: str, place: TopicPartition, clock: Clock) -> None:
        self.place = place
        self.result: CompactionResult | None = None
        self.error: str | None = None
        self._path = path
        self._began = time.monotonic()
        self._view = CompactionView(
            topic=place.topic,
            partition=place.partition,
            state=RunState.RUNNING,
            started_ms=clock(),
            seconds=0.0,
            phase=_OPENING,
            round=0,
            share=0.0,
            bytes_done=0,
            bytes_total=0,
            map_fill=0.0,
            records_read=0,
            records_kept=0,
        )
        # Not a daemon thread: the process waits for it at exit.
        self._thread = threading.Thread(target=self._run, name="duralog-console-compact")

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._view.state is RunState.RUNNING

    def progress(self) -> CompactionView:
        view = self._view
        return replace(view, seconds=time.monotonic() - self._began) if view.state is RunState.RUNNING else view

    def wait(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._compact()
        except Exception as error:  # Any error: the page shows it.
            self.error = describe_any(error)
        state = RunState.FAILED if self.error is not None else RunState.DONE
        self._update(state=state, phase=_DONE, share=1.0, seconds=time.monotonic() - self._began)

    def _compact(self) -> None:
        request = CompactRequest(logs=_log(self._path, self.place, BrokerConfig()))
        try:
            report = compact(request, on_progress=self._show, on_partition=self._show_closing)
        except NotCompacted as error:
            raise not_compacted(error) from None
        (done,) = report.partitions
        if done.report is None or done.before is None or done.after is None:
            raise StorageError(f"{self.place} could not be compacted: {done.failure}")
        self.result = _result(done.report, done.before, done.after)

    def _show(self, progress: Progress) -> None:
        if not isinstance(progress, PartitionProgress):
            return  # The directory is being opened.
        compaction = progress.compaction
        self._update(
            phase=compaction.phase.value,
            round=compaction.round,
            share=progress.done / progress.total if progress.total else 1.0,
            bytes_done=progress.done,
            bytes_total=progress.total,
            map_fill=compaction.map_fill,
            records_read=compaction.records_read,
            records_kept=compaction.records_kept,
        )

    def _show_closing(self, _: PartitionCompaction) -> None:
        self._update(phase=_CLOSING, share=1.0)

    def _update(self, **changes: object) -> None:
        self._view = replace(self._view, **changes)  # type: ignore[arg-type]


def _result(report: CompactionReport, before: LogSize, after: LogSize) -> CompactionResult:
    return CompactionResult(
        size_before=before.size_bytes,
        size_after=after.size_bytes,
        segments_before=before.segments,
        segments_after=after.segments,
        records_before=report.records_before,
        records_after=report.records_after,
        superseded_records=report.superseded_records,
        expired_tombstones=report.expired_tombstones,
        aborted_records=report.aborted_records,
        keyless_records=report.keyless_records,
        rounds=report.rounds,
        seconds=report.seconds,
        notes=tuple(report.notes),
        damage=(*report.left_segments, *report.corrupt_batches),
    )
