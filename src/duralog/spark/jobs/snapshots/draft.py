"""What a snapshot of a topic will do, decided before anything is written: from where, up to where, and from what.

A run continues the last snapshot only if the result is certainly that of a full one (`basis`). Of a cluster's copies,
the last word is had by tasks that have read them (`sound_copies`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duralog.errors import InvalidConfig
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.sources import ClusterPlan
from duralog.scanning.executor import Executor
from duralog.scanning.logs import AnyPlan, Logs
from duralog.scanning.offset_ranges import OffsetRange, Offsets, Timestamps
from duralog.spark.jobs.snapshots.basis import GAPS, tombstones_until_ms, why_not_as_planned, why_not_from
from duralog.spark.jobs.snapshots.plan import SnapshotRequest
from duralog.spark.jobs.snapshots.sound_copies import SoundCopies, ToCheck, check_copies
from duralog.spark.lake.log_ends import check_ends, remember_ends
from duralog.spark.lake.made_from import MadeFrom
from duralog.spark.lake.row_planning import PlannedRows, plan_rows
from duralog.spark.lake.table_state import StateRefused, TableState
from duralog.spark.lake.tables import LakeTable
from duralog.spark.lake.writing_right import WritingRight
from duralog.storage.log.time_lookup import LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to be done for one topic. Nothing has been written."""

    table: LakeTable
    right: WritingRight
    before: TableState
    nothing: TableState
    """The state of an empty snapshot."""
    why_full: str | None
    ends: Mapping[TopicPartition, int]
    ranges: Mapping[TopicPartition, OffsetRange]
    log_ends: Mapping[str, Any]
    planned: AnyPlan
    rows: PlannedRows
    due_ms: int | None
    copies: SoundCopies | None = None
    """What is read instead of the plan."""


def draft_of(
    logs: Logs,
    table: LakeTable,
    right: WritingRight,
    request: SnapshotRequest,
    partitions: list[TopicPartition],
    read_ms: int,
) -> Draft | None:
    """None if nothing is known of the table's columns. `read_ms` is when the logs are read."""
    spec = table.spec
    made_from = MadeFrom.of(logs, partitions)
    nothing = TableState(
        job=spec.job,
        topic=spec.topic,
        topic_id=logs.topic_id(spec.topic),
        table_format=request.format,
        isolation=str(request.isolation),
        headers=request.rows.headers,
        next_offsets={},
        run=0,
        details={
            "live_keys": {},
            "read_ms": read_ms,
            "is_latest": request.is_latest,
            "first_offsets": {str(found.partition): logs.start_offset(found) for found in partitions},
            **made_from.detail(),
        },
    )
    before = table.state or nothing
    before.check(nothing, spec.where)
    if not request.full:
        _check_partitions(before, partitions, spec.where)
        check_ends(
            logs,
            before,
            partitions,
            where=spec.where,
            taken="is in the last snapshot up to",
            advice="Take a full one, or give another target",
        )
    ends = _ends(logs, request, partitions)
    last = MadeFrom.in_state(before, spec.where)
    if request.is_latest and not request.full and made_from.is_cluster and last is not None and last.is_cluster:
        # The high watermark never goes back, only what is known of it: the log has these offsets, as was checked.
        ends = {partition: max(end, before.next_offsets.get(partition.partition, 0)) for partition, end in ends.items()}
    due_ms = None if made_from.is_cluster else tombstones_until_ms(logs, before)
    why_full = "a full one was asked for" if request.full else why_not_from(before, nothing, ends, due_ms, spec.where)
    ranges = _ranges(logs, before if why_full is None else nothing, ends)
    rows = plan_rows(logs, ranges, table.state, request.rows, isolation=request.isolation, where=spec.where)
    if rows is None:
        return None
    if why_full is None and (why_full := why_not_as_planned(before, rows)) is not None:
        ranges = _ranges(logs, nothing, ends)
    basis = before if why_full is None else nothing
    return Draft(
        table=table,
        right=right,
        before=before,
        nothing=nothing,
        why_full=why_full,
        ends=ends,
        ranges=ranges,
        log_ends=remember_ends(logs, basis, ends),
        planned=_plan(logs, ranges, request),
        rows=rows,
        due_ms=due_ms,
    )


def with_sound_copies(
    logs: Logs, drafts: Sequence[Draft], request: SnapshotRequest, executor: Executor
) -> Iterator[Draft]:
    """Of a cluster, with copies that are sound, and full where the copies lack what is new."""
    if not any(isinstance(draft.planned, ClusterPlan) for draft in drafts):
        yield from drafts
        return

    def check(some: Sequence[Draft]) -> Iterator[Draft]:
        wanted = [
            ToCheck(planned=draft.planned, ranges=draft.ranges, is_incremental=draft.why_full is None) for draft in some
        ]
        for draft, copies in zip(some, check_copies(executor, wanted, request.max_slice_bytes), strict=True):
            yield replace(draft, copies=copies)

    checked = list(check(drafts))
    lacking = {place: draft for place, draft in enumerate(checked) if draft.copies and draft.copies.has_gaps}
    in_full = [_in_full(logs, draft, request) for draft in lacking.values()]
    full = dict(zip(lacking, check(in_full), strict=True))
    for place, draft in enumerate(checked):
        yield full.get(place, draft)


def _in_full(logs: Logs, draft: Draft, request: SnapshotRequest) -> Draft:
    ranges = _ranges(logs, draft.nothing, draft.ends)
    return replace(
        draft,
        why_full=GAPS,
        ranges=ranges,
        log_ends=remember_ends(logs, draft.nothing, draft.ends),
        planned=_plan(logs, ranges, request),
    )


def _plan(logs: Logs, ranges: Mapping[TopicPartition, OffsetRange], request: SnapshotRequest) -> AnyPlan:
    return logs.plan(ranges, isolation=request.isolation, max_slice_bytes=request.max_slice_bytes)


def _check_partitions(before: TableState, partitions: Sequence[TopicPartition], where: str) -> None:
    numbers = {partition.partition for partition in partitions}
    if gone := sorted(set(before.next_offsets) - numbers):
        raise StateRefused(
            f"{where}: partition {gone[0]} is in the last snapshot, and has no copy here: give all directories. A full"
            " one is without it"
        )


def _ranges(logs: Logs, before: TableState, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
    """What is read: from where the state has ended, as far as the log has it still."""
    return {
        partition: OffsetRange(
            max(before.next_offsets.get(partition.partition, 0), min(logs.start_offset(partition), end)),
            end,
        )
        for partition, end in ends.items()
    }


def _ends(logs: Logs, request: SnapshotRequest, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    end: Offsets | Timestamps
    if request.as_of_ms is not None:
        end = Timestamps(everywhere_ms=request.as_of_ms)
    else:
        given = request.as_of_offsets.get(partitions[0].topic, {})
        numbers = {partition.partition for partition in partitions}
        if unknown := sorted(set(given) - numbers):
            raise InvalidConfig(f"there is no partition {unknown[0]} of topic {partitions[0].topic}")
        of = {TopicPartition(partitions[0].topic, number): offset for number, offset in given.items()}
        end = Offsets(everywhere=LATEST, of=of)
    found = logs.resolve(partitions, end=end, isolation=request.isolation)
    return {partition: bounds.end_offset for partition, bounds in found.items()}
