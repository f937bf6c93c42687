"""The end of a log as the last run of a job left it, and how to recognise it.

A log that was truncated, mostly by a recovery after a crash, and written again has offsets that a table has already,
with other records. If it is shorter than it was, its end offset shows that. If it has grown again, only its contents
do. So a job remembers of each partition the batch with the last offset that it took, and which leader epoch wrote
there.

The next run looks for that batch, by the index: a few small reads for each partition. What it finds is
- the same batch, by its checksum;
- the same batch with fewer records or with a delete horizon, or none at all: compaction, or a repair, did that. Of a
  log that was written again it cannot be: that has a batch for every offset, with all its records;
- a batch of the current format where there was an older one: `job upgrade` did that;
- anything else, or a leader epoch that ended before: the log is another one, and the run is refused.

So a log that was truncated, written again and compacted over the same offsets, all by the same leader, is not noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from duralog.columnar.pieces import read_pieces
from duralog.errors import OffsetOutOfRange
from duralog.format.layout import DELETE_HORIZON_BIT
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.locations import location_of
from duralog.scanning.remote_work import side_by_side
from duralog.spark.lake.table_state import StateRefused, TableState
from duralog.storage.log.readable_log import ReadableLog
from duralog.storage.log.view import LogView
from duralog.storage.store import Store

DETAIL = "log_ends"
"""Of a table's state."""

_CURRENT_MAGIC = 2
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The batch with the last offset that was taken."""

    magic: int
    base_offset: int
    """-1 for a compressed message of an old format."""
    last_offset: int
    leader_epoch: int
    record_count: int
    """-1 for a compressed message of an old format."""
    crc: int

    def is_left_of(self, found: Any) -> bool:
        """Whether this batch can have become the one that is there now, a row of `BATCH_DTYPE`."""
        if int(found["magic"]) > self.magic or self._is_same(found):
            return True
        if int(found["magic"]) < _CURRENT_MAGIC:
            # The contents and the first offset of a compressed message are unknown without decompression.
            return int(found["magic"]) == self.magic and _UNKNOWN in (self.record_count, int(found["record_count"]))
        has_less = int(found["record_count"]) < self.record_count
        return self._is_in_same_place(found) and (has_less or int(found["attributes"]) & DELETE_HORIZON_BIT != 0)

    def _is_same(self, found: Any) -> bool:
        return self._is_in_same_place(found) and int(found["crc"]) == self.crc

    def _is_in_same_place(self, found: Any) -> bool:
        names = ("magic", "base_offset", "last_offset", "leader_epoch")
        return all(int(found[name]) == getattr(self, name) for name in names)


def remember_ends(store: Store, before: TableState, after: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """The ends of the logs at these offsets, as JSON values. What was taken no further keeps what is known of it."""
    known = dict(before.details.get(DETAIL, {}))
    new = [item for item in sorted(after.items()) if before.next_offsets.get(item[0].partition) != item[1]]

    def look(item: tuple[TopicPartition, int]) -> dict[str, Any]:
        return _remembered(store.partition(*item[0]), item[1])

    found = side_by_side(look, new, is_remote=location_of(store).is_remote)
    return {**known, **{str(partition.partition): end for (partition, _), end in zip(new, found, strict=True)}}


def check_ends(
    store: Store, before: TableState, partitions: list[TopicPartition], *, where: str, taken: str, advice: str
) -> None:
    """Raise unless the logs continue where the last run ended.

    `taken` says in the error what the job did up to an offset, `advice` what its user can do.
    """
    ends = before.details.get(DETAIL, {})

    def check(partition: TopicPartition) -> None:
        number = partition.partition
        offset = before.next_offsets.get(number, 0)
        log = store.partition(*partition)
        name = f"{partition.topic}-{number} {taken} offset {offset}"
        if offset > log.end_offset:
            raise OffsetOutOfRange(f"{name}, but the log ends at {log.end_offset}: it was cut, or made again. {advice}")
        difference = _difference(log, offset, ends.get(str(number)), where) if isinstance(ends, dict) else None
        if difference is not None:
            raise StateRefused(
                f"{name}, but the log has other records there now: {difference}. It was cut and written again, or made"
                f" again. {advice}"
            )

    for _ in side_by_side(check, partitions, is_remote=location_of(store).is_remote):
        pass


def _remembered(log: ReadableLog, end_offset: int) -> dict[str, Any]:
    found = _batch_with(log.view, end_offset - 1)
    batch = None
    if found is not None:
        fields = LogEnd.__dataclass_fields__
        batch = asdict(LogEnd(**{name: int(found[name]) for name in fields}))
    return {"epoch": log.leader_epochs.epoch_for(end_offset - 1), "batch": batch}


def _difference(log: ReadableLog, end_offset: int, known: Any, where: str) -> str | None:
    """How the log differs from what is known of it before the offset; None if it does not, or if this is unknown."""
    if known is None or end_offset <= log.start_offset:
        return None
    epoch, batch = _parsed(known, where)
    ended = log.leader_epochs.end_offset_for(epoch, log.end_offset)
    if 0 <= ended.start_offset < end_offset:
        return f"leader epoch {epoch} wrote offset {end_offset - 1}, and ends at {ended.start_offset} now"
    found = None if batch is None else _batch_with(log.view, end_offset - 1)
    if batch is None or found is None or batch.is_left_of(found):
        return None
    first, last = max(int(found["base_offset"]), 0), int(found["last_offset"])
    return (
        f"the batch with offset {end_offset - 1} goes to {batch.last_offset} and has checksum {batch.crc:#010x} in"
        f" the state of {where}, and is that of offsets {first} to {last} with {int(found['crc']):#010x} in the log"
    )


def _parsed(known: Any, where: str) -> tuple[int, LogEnd | None]:
    try:
        epoch, batch = known["epoch"], known["batch"]
        values = [epoch] if batch is None else [epoch, *batch.values()]
        if not all(type(value) is int for value in values):
            raise ValueError(values)
        return epoch, None if batch is None else LogEnd(**batch)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateRefused(f"{where}: the state is damaged: {known!r} is not an end of a log") from error


def _batch_with(view: LogView, offset: int) -> Any:
    """The header of the batch with this offset; None if there is none, as after a compaction."""
    if offset < view.start_offset:
        return None
    for segment, end in view.segments_from(offset):
        place = segment.find_batch(offset, end)
        if place is not None:
            piece = next(read_pieces(segment.file, start=place.position, end=place.position + place.size))
            row = piece.batches[0] if len(piece.batches) else None
            is_there = row is not None and int(row["base_offset"]) <= offset
            return row if is_there else None
    return None
