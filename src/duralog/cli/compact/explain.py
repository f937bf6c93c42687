"""`duralog compact --explain`: of each compacted log what is new, what would go, what keeps it, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duralog.cli.common.failures import describe, printable, say
from duralog.cli.common.output import Output
from duralog.cli.common.tables import plural, size_text
from duralog.cli.compact.facts import write_explanation
from duralog.cli.compact.objects import explanation_object, failure_object
from duralog.cli.compact.view import CompactionView
from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.storage.compaction.preview import ExplainSettings, Explanation
from duralog.storage.compaction.settings import CleanerSettings
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.live_explanation import CleanerCheckpoints, explain_live
from duralog.storage.store import Store


def _not_told(_explanation: Explanation) -> None:
    pass


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
    on_explained: Callable[[Explanation], None] = _not_told,
) -> bool:
    """Returns whether all logs could be read and are sound. Without `memory_bytes`, a cleaner thread's share counts.

    `on_explained` is given each explanation as a value, too.
    """
    cleaner = CleanerSettings.of(store.config)
    settings = ExplainSettings(
        now_ms=now_ms,
        compaction=cleaner.on_request(memory_bytes=memory_bytes, on_progress=view.show),
        again=again,
        records=records,
    )
    totals = _Totals()
    checkpoints = CleanerCheckpoints(store.path)
    for topic, number, config in partitions:
        view.begin(f"{topic}-{number}")
        try:
            explanation = explain_live(store, TopicPartition(topic, number), config, checkpoints, settings)
        except DuralogError as error:
            totals.failed += 1
            view.hide()
            say(f"error: {printable(f'{topic}-{number}: {describe(error)}')}")
            if output.as_json:
                output.object(failure_object(topic, number, error))
            continue
        totals.add(explanation)
        on_explained(explanation)
        if output.as_json:
            output.object(explanation_object(explanation, config, now_ms))
        else:
            write_explanation(explanation, config, now_ms, output)
    if output.as_json:
        output.object({"kind": "summary", **dataclasses.asdict(totals)})
    elif partitions:
        _write_summary(totals, output)
    return not totals.failed and not totals.damaged


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
