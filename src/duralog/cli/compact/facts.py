"""The lines of `duralog compact --explain` for one log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duralog.cli.compact.advice import advice, verdict
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural, size_text, write_fact, write_table
from duralog.config import TopicConfig
from duralog.config.error_text import printable
from duralog.config.times import duration_text, format_time
from duralog.operations.explain import ExplanationTotals
from duralog.storage.compaction.cleanable import CleaningLimit
from duralog.storage.compaction.delete_horizons import DeleteHorizons
from duralog.storage.compaction.gone_records import GoneRecord
from duralog.storage.compaction.preview import Explanation, SegmentGroup
from duralog.storage.compaction.report import CompactionReport

_MOST_LINES = 8
"""How many segments, or horizons, are listed. JSON has all of them."""
_MOST_KEY_CHARACTERS = 80
DUE_ADVICE = (
    "A running cleaner compacts what is due by itself. If it stays due, the cleaner is behind, or has given up the"
    " partition: stop the broker and run duralog compact."
)
_RECORD_NAMES = ("offset", "why", "by_offset", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationText:
    """An explanation in words."""

    heading: str
    facts: Sequence[tuple[str, str]]
    """Labels and texts; the label is empty if it is that of the line above."""
    damage: Sequence[str]
    advice: Sequence[str]

    @classmethod
    def of(cls, explanation: Explanation, config: TopicConfig, now_ms: int) -> ExplanationText:
        facts: list[tuple[str, str]] = []
        label = ""
        for each, text in _facts(explanation, now_ms):
            facts.append(("" if each == label else each, printable(text)))
            label = each
        report = explanation.report
        return cls(
            heading=f"{printable(f'{explanation.topic}-{explanation.partition}')}: {verdict(explanation.dirty)}",
            facts=facts,
            damage=() if report is None else (*report.left_segments, *report.corrupt_batches),
            advice=list(advice(explanation, config)),
        )


def write_explanation(explanation: Explanation, config: TopicConfig, now_ms: int, output: Output) -> None:
    text = ExplanationText.of(explanation, config, now_ms)
    output.heading(text.heading)
    if not output.quiet:
        for label, fact in text.facts:
            write_fact(output, label, fact)
        if explanation.records:
            _write_records(explanation.records, output)
    for damage in text.damage:
        output.damage(damage)
    for line in text.advice:
        output.note(f"{explanation.topic}-{explanation.partition}", line)


def summary_line(totals: ExplanationTotals) -> str:
    words = [f"{plural(totals.partitions, 'partition')}: {totals.due:,} due"]
    if totals.failed:
        words.append(f"{totals.failed:,} that cannot be read")
    if totals.damaged:
        words.append(f"{totals.damaged:,} with damage")
    return f"{', '.join(words)}; compaction would free {size_text(totals.freed_bytes)}"


def _facts(explanation: Explanation, now_ms: int) -> Iterator[tuple[str, str]]:
    dirty = explanation.dirty
    compacted = "never compacted" if explanation.checkpoint is None else f"compacted up to {explanation.checkpoint}"
    yield (
        "log",
        f"offsets {explanation.start_offset} to {explanation.end_offset}, {plural(explanation.segments, 'segment')},"
        f" {size_text(explanation.size_bytes)}; {compacted}",
    )
    yield (
        "new",
        f"{dirty.dirty_ratio:.1%}: {size_text(dirty.cleanable_bytes)} from offset {dirty.first_dirty_offset} on, after"
        f" {size_text(dirty.clean_bytes)}; compaction starts above {dirty.min_dirty_ratio:.1%}",
    )
    limit = dirty.first_uncleanable
    yield "limit", f"offset {limit.offset}: {limit.reason(duration_text)}"
    if limit.cleanable_from_ms is not None:
        yield "limit", f"it can be compacted {_moment(limit.cleanable_from_ms, now_ms)}"
    if limit.limit is CleaningLimit.OPEN_TRANSACTION:
        for transaction in explanation.open_transactions[:_MOST_LINES]:
            yield (
                "limit",
                f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}: open since offset"
                f" {transaction.first_offset}, last append at {_time_and_age(transaction.last_append_ms, now_ms)}",
            )
    if explanation.report is not None:
        yield from _gains(explanation, explanation.report)
        yield from _segments(explanation.groups, explanation.report)
    yield from _horizons("tombstones", explanation.horizons, now_ms)
    after = explanation.horizons_after
    if after is not None and (after.batches or explanation.horizons.batches):
        yield from _horizons("then", after, now_ms)
    yield from _map(explanation)


def _gains(explanation: Explanation, report: CompactionReport) -> Iterator[tuple[str, str]]:
    gone = report.records_before - report.records_after
    freed = report.bytes_before - report.bytes_after
    in_part = "" if report.end_offset >= report.end else f", in the first round, up to offset {report.end_offset}"
    yield (
        "removable",
        f"{gone:,} of {plural(report.records_before, 'record')}, {size_text(freed)} of"
        f" {size_text(report.bytes_before)}{in_part}",
    )
    tombstones, markers = plural(report.expired_tombstones, "tombstone"), plural(explanation.spent_markers, "marker")
    reasons = (
        (report.superseded_records, f"{report.superseded_records:,} superseded by a later record of the key"),
        (report.expired_tombstones, f"{tombstones} past the delete horizon"),
        (report.keyless_records, f"{report.keyless_records:,} without a key"),
        (report.aborted_records, f"{report.aborted_records:,} of aborted transactions"),
        (explanation.spent_markers, f"{markers} of transactions with nothing left"),
    )
    for count, words in reasons:
        if count:
            yield "removable", words


def _segments(groups: Sequence[SegmentGroup], report: CompactionReport) -> Iterator[tuple[str, str]]:
    yield "segments", f"{report.segments_before:,} would become {report.segments_after:,}"
    for group in groups[:_MOST_LINES]:
        many = f", {len(group.base_offsets):,} segments" if len(group.base_offsets) > 1 else ""
        yield (
            "segments",
            f"from offset {group.base_offsets[0]}{many}: {size_text(group.bytes_before)} to"
            f" {size_text(group.bytes_after)}",
        )
    if len(groups) > _MOST_LINES:
        yield "segments", f"and {len(groups) - _MOST_LINES:,} more"


def _horizons(label: str, horizons: DeleteHorizons, now_ms: int) -> Iterator[tuple[str, str]]:
    if horizons.earliest_ms is None or horizons.latest_ms is None:
        yield label, "no batch has a delete horizon"
        return
    passed = f"; that of {horizons.passed_batches:,} has passed" if horizons.passed_batches else ""
    many = horizons.batches != 1
    yield label, f"{plural(horizons.batches, 'batch')} {'have' if many else 'has'} a delete horizon{passed}"
    times = sorted(horizons.by_time)
    for time_ms in times[:_MOST_LINES]:
        yield label, f"{plural(horizons.by_time[time_ms], 'batch')} may be removed {_moment(time_ms, now_ms)}"
    if len(times) > _MOST_LINES:
        yield label, f"and more, the last {_moment(horizons.latest_ms, now_ms)}"


def _map(explanation: Explanation) -> Iterator[tuple[str, str]]:
    need = explanation.map
    if need is None:
        return
    if need.is_complete and need.rounds == 1:
        share = need.keys / max(need.capacity, 1)
        yield (
            "map",
            f"{plural(need.keys, 'key')}, {share:.1%} of the {need.capacity:,} that {size_text(need.memory_bytes)}"
            " hold: one round",
        )
        return
    rounds = f"{need.rounds}" if need.is_complete else f"more than {need.rounds}"
    yield (
        "map",
        f"too small: {size_text(need.memory_bytes)} hold {need.capacity:,} keys, it takes {rounds} rounds, each over"
        " the whole log",
    )
    yield "map", f"one round takes {need.one_round_bytes} bytes ({size_text(need.one_round_bytes)}), or less"


def _moment(time_ms: int, now_ms: int) -> str:
    """`since TIME (2 hours ago)`, `from TIME on (in 2 hours)`."""
    if time_ms <= now_ms:
        return f"since {_time_and_age(time_ms, now_ms)}"
    return f"from {format_time(time_ms)} on (in {duration_text(time_ms - now_ms)})"


def _time_and_age(time_ms: int, now_ms: int) -> str:
    return f"{format_time(time_ms)} ({duration_text(now_ms - time_ms)} ago)"


def _write_records(records: Sequence[GoneRecord], output: Output) -> None:
    rows = [
        [
            str(record.offset),
            str(record.reason),
            "-" if record.superseded_by is None else str(record.superseded_by),
            _key_text(record.key),
        ]
        for record in records
    ]
    write_table(output, _RECORD_NAMES, rows, right=("offset", "by_offset"), cut=("key",), least=("by_offset",))


def _key_text(key: bytes | None) -> str:
    if key is None:
        return "-"
    text = printable(key[: 4 * _MOST_KEY_CHARACTERS].decode("utf-8", "backslashreplace"))
    is_cut = len(text) > _MOST_KEY_CHARACTERS or len(key) > 4 * _MOST_KEY_CHARACTERS
    return f'"{text[:_MOST_KEY_CHARACTERS]}"{"..." if is_cut else ""}'
