"""`duralog compact --explain` in words: whether a log is due for compaction, why not, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator

from duralog.cli.voice.tables import plural, size_text
from duralog.config import TopicConfig
from duralog.config.times import duration_text
from duralog.storage.compaction.cleanable import CleaningLimit, DirtyRange
from duralog.storage.compaction.preview import Explanation

_INT64_MAX = 2**63 - 1


def verdict(dirty: DirtyRange) -> str:
    """Whether a compaction should start by itself, and why."""
    if (why_not := dirty.why_not(duration_text)) is not None:
        return why_not
    if dirty.overdue_ms:
        return f"due: a record has waited {duration_text(dirty.overdue_ms)} longer than max.compaction.lag.ms"
    return f"due: {dirty.dirty_ratio:.1%} of the log is new"


def advice(explanation: Explanation, config: TopicConfig) -> Iterator[str]:
    dirty = explanation.dirty
    if dirty.correction is not None:
        yield f"the checkpoint is ignored: {dirty.correction}"
    if dirty.first_uncleanable.limit is CleaningLimit.OPEN_TRANSACTION:
        yield (
            "nothing after the start of the open transaction is compacted until it ends; if its producer is gone,"
            " end it with kafka-transactions.sh --abort"
        )
    elif not dirty.cleanable_bytes:
        yield from _unlocking(explanation, config)
    if dirty.cleanable_bytes and not dirty.is_eligible:
        yield from _sooner(config)
    if not dirty.cleanable_bytes and explanation.horizons.passed_batches:
        yield (
            f"the delete horizon of {plural(explanation.horizons.passed_batches, 'batch')} has passed: the next"
            " compaction removes their tombstones and markers, but none starts before something new can be compacted;"
            " duralog compact --again starts one now"
        )
    need = explanation.map
    if need is not None and (need.rounds > 1 or not need.is_complete):
        yield (
            f"log.cleaner.dedupe.buffer.size of {need.one_round_bytes} for each of log.cleaner.threads makes it one"
            f" round; duralog compact takes it as --map-bytes {need.one_round_bytes}"
        )
    report = explanation.report
    if report is not None and report.keyless_records:
        yield (
            f"{plural(report.keyless_records, 'record')} without a key would be removed: a compacted topic should have"
            " none, and Kafka's brokers refuse them"
        )
    if report is not None and (report.left_segments or report.corrupt_batches):
        yield (
            "damage does not stop a compaction: damaged batches are copied as they are, and a segment that cannot be"
            " read to its end stays; duralog repair removes the damage"
        )


def _sooner(config: TopicConfig) -> Iterator[str]:
    lag_ms = config.max_compaction_lag_ms
    waits = "without limit" if lag_ms == _INT64_MAX else f"for {duration_text(lag_ms)} at most"
    yield (
        f"records wait {waits} (max.compaction.lag.ms); a lower min.cleanable.dirty.ratio starts it sooner, and duralog"
        " compact does it now"
    )


def _unlocking(explanation: Explanation, config: TopicConfig) -> Iterator[str]:
    if explanation.dirty.first_uncleanable.limit is CleaningLimit.COMPACTION_LAG:
        yield "a lower min.compaction.lag.ms lets it be compacted sooner"
    elif explanation.active_bytes:
        yield (
            f"the active segment has {size_text(explanation.active_bytes)}: it can be compacted after a new one starts,"
            f" at segment.bytes ({size_text(config.segment_bytes)}) or segment.ms ({duration_text(config.segment_ms)}),"
            " or with duralog compact --roll"
        )
