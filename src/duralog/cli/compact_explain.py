"""`duralog compact --explain`: of each compacted log what is new, what would go, what keeps it, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duralog.cli.compact_facts import write_explanation
from duralog.cli.compact_objects import explanation_object, failure_object
from duralog.cli.compact_view import CompactionView
from duralog.cli.failures import describe, printable, say
from duralog.cli.output import Output
from duralog.cli.tables import plural, size_text
from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.storage.cleaner_settings import CleanerSettings
from duralog.storage.compaction_preview import ExplainSettings, Explanation, explain_compaction
from duralog.storage.file_system import Entry, LocalFileSystem
from duralog.storage.log_directory import LogDirectory, TopicPartition
from duralog.storage.store import Store

_ATTEMPTS = 4
"""A log that a broker compacts meanwhile may have lost the segments that were found. Then it is read again."""


def explain_all(
    store: Store,
    partitions: Sequence[tuple[str, int, TopicConfig]],
    output: Output,
    view: CompactionView,
    *,
    now_ms: int,
    memory_bytes: int | None,
    again: bool,
    records: int,
) -> bool:
    """Returns whether all logs could be read and are sound. Without `memory_bytes`, a cleaner thread's share counts."""
    cleaner = CleanerSettings.of(store.config)
    settings = ExplainSettings(
        now_ms=now_ms,
        memory_bytes=cleaner.memory_bytes if memory_bytes is None else memory_bytes,
        load_factor=cleaner.load_factor,
        again=again,
        records=records,
        on_progress=view.show,
    )
    totals = _Totals()
    checkpoints = _Checkpoints(store.path)
    for topic, number, config in partitions:
        view.begin(f"{topic}-{number}")
        try:
            explanation = _explain(store, topic, number, config, checkpoints, settings)
        except DuralogError as error:
            totals.failed += 1
            view.hide()
            say(f"error: {printable(f'{topic}-{number}: {describe(error)}')}")
            if output.as_json:
                output.object(failure_object(topic, number, error))
            continue
        totals.add(explanation)
        if output.as_json:
            output.object(explanation_object(explanation, config, now_ms))
        else:
            write_explanation(explanation, config, now_ms, output)
    if output.as_json:
        output.object({"kind": "summary", **dataclasses.asdict(totals)})
    elif partitions:
        _write_summary(totals, output)
    return not totals.failed and not totals.damaged


class _Checkpoints:
    """Up to where each log is compacted, by the file as it is at the moment. It is read only if it has changed."""

    def __init__(self, path: str) -> None:
        self._files = LocalFileSystem()
        self._directory = LogDirectory(self._files, path)
        self._path = self._directory.path_of(CLEANER_OFFSET_CHECKPOINT)
        self._entry: Entry | None = None
        self._offsets: Mapping[TopicPartition, int] = {}

    def get(self, partition: TopicPartition) -> int | None:
        entry = self._files.entry(self._path)
        if entry != self._entry:
            self._entry = entry
            self._offsets = self._directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        return self._offsets.get(partition)


def _explain(
    store: Store,
    topic: str,
    number: int,
    config: TopicConfig,
    checkpoints: _Checkpoints,
    settings: ExplainSettings,
) -> Explanation:
    for attempt in range(_ATTEMPTS):
        try:
            # Before the log: a broker may go on compacting it, and the checkpoint must not be ahead of what is read.
            checkpoint = checkpoints.get(TopicPartition(topic, number))
            log = store.partition(topic, number)
            log.update_config(config)
            return explain_compaction(log, checkpoint, settings)
        except DuralogError:
            if attempt == _ATTEMPTS - 1:
                raise
            # Its segments may have been deleted, or replaced, since their names were read.
            store = Store(store.path, config=store.config, read_only=True)
    raise AssertionError


@dataclass(slots=True)
class _Totals:
    partitions: int = 0
    due: int = 0
    failed: int = 0
    damaged: int = 0
    freed_bytes: int = 0

    def add(self, explanation: Explanation) -> None:
        self.partitions += 1
        self.due += explanation.dirty.is_eligible
        report = explanation.report
        if report is not None:
            self.damaged += bool(report.corrupt_batches or report.left_segments)
            self.freed_bytes += report.bytes_before - report.bytes_after


def _write_summary(totals: _Totals, output: Output) -> None:
    words = [f"{plural(totals.partitions, 'partition')}: {totals.due:,} due"]
    if totals.failed:
        words.append(f"{totals.failed:,} that cannot be read")
    if totals.damaged:
        words.append(f"{totals.damaged:,} with damage")
    output.heading(f"{', '.join(words)}; compaction would free {size_text(totals.freed_bytes)}")
    if totals.due and not output.quiet:
        output.columns(
            "What is due, a running cleaner takes up by itself. Where it stays due, the cleaner is behind, or has given"
            " the partition up: stop the broker and run duralog compact."
        )
