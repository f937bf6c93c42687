"""Explain what a compaction would do to the logs of a directory, and why none starts by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.config.error_text import describe
from duralog.config.progress import OnProgress, ignore
from duralog.errors import DuralogError
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.operations.compacted_logs import CompactionMeter, LogsToCompact, chosen_logs
from duralog.operations.workers import ignore_result
from duralog.storage.compaction.preview import ExplainSettings, Explanation
from duralog.storage.compaction.settings import CleanerSettings
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import FollowedCheckpoint
from duralog.storage.live_explanation import explain_live
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    logs: LogsToCompact
    now_ms: int
    records: int = 0
    """List up to this many of the records that would be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPartition:
    """The result of one partition: an explanation, or a failure."""

    partition: TopicPartition
    config: TopicConfig
    explanation: Explanation | None = None
    failure: str | None = None


@dataclass(slots=True, kw_only=True)
class ExplanationTotals:
    partitions: int = 0
    due: int = 0
    failed: int = 0
    damaged: int = 0
    freed_bytes: int = 0

    def add(self, done: ExplainedPartition) -> None:
        explanation = done.explanation
        if explanation is None:
            self.failed += 1
            return
        self.partitions += 1
        self.due += explanation.dirty.is_eligible
        report = explanation.report
        if report is not None:
            self.damaged += bool(report.corrupt_batches or report.left_segments)
            self.freed_bytes += report.bytes_before - report.bytes_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport:
    path: str
    partitions: Sequence[ExplainedPartition]
    totals: ExplanationTotals
    not_compacted: int = 0
    """Chosen partitions of topics that are not compacted."""

    @property
    def is_well(self) -> bool:
        return not self.totals.failed and not self.totals.damaged


def explain(
    request: ExplainRequest,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[ExplainedPartition], None] = ignore_result,
) -> ExplainReport:
    """Explain what a compaction of the chosen logs would do, and why none starts by itself. The directory may be in
    use.
    """
    logs = request.logs
    with Store(logs.path, config=logs.config, read_only=True) as store:
        chosen = chosen_logs(store, logs)
        meter = CompactionMeter(len(chosen.compacted), on_progress, is_dry_run=True)
        cleaner = CleanerSettings.of(store.config)
        settings = ExplainSettings(
            now_ms=request.now_ms,
            compaction=cleaner.on_request(memory_bytes=logs.memory_bytes, on_progress=meter.show),
            again=logs.again,
            records=request.records,
        )
        cleaned = {path: FollowedCheckpoint(LocalFileSystem(), path, CLEANER_OFFSET_CHECKPOINT) for path in store.paths}
        totals = ExplanationTotals()
        done: list[ExplainedPartition] = []
        for partition, config in chosen.compacted.items():
            meter.begin(partition)
            try:
                explanation = explain_live(store, partition, config, cleaned[store.directory_of(*partition)], settings)
            except DuralogError as error:
                result = ExplainedPartition(partition=partition, config=config, failure=describe(error))
            else:
                result = ExplainedPartition(partition=partition, config=config, explanation=explanation)
            totals.add(result)
            done.append(result)
            on_partition(result)
        return ExplainReport(path=store.path, partitions=done, totals=totals, not_compacted=chosen.not_compacted)
