"""The end of a log as the last run of a job left it, and how to recognise it.

A log that was truncated, mostly by a recovery after a crash, and written again has offsets that a table has already,
with other records. If it is shorter than it was, its end offset shows that. If it has grown again, only its contents
do. So a job remembers of each partition the batch with the last offset that it took, and which leader epoch wrote
there.

The next run looks for that batch, by the index: a few small reads for each partition. What it finds in one directory is
- the same batch, by its checksum;
- the same batch with fewer records or with a delete horizon, or none at all: compaction, or a repair, did that. Of a
  log that was written again it cannot be: that has a batch for every offset, with all its records;
- a batch of the current format where there was an older one: `job upgrade` did that;
- anything else, or a leader epoch that ended before: the log is another one, and the run is refused.

So a log that was truncated, written again and compacted over the same offsets, all by the same leader, is not noticed.

In the directories of a cluster, another copy may count in the next run. Within a cluster, an offset and its leader
epoch name one record of a topic, and all copies that have it have the same records before it. So the log continues if
the history of the copy that counts has that epoch at that offset, and the batch, wherever a sound copy has it, is the
same but for compaction: cleaners run on each node by themselves, so either of the two may have fewer records. Where it
is not certain that both runs are of one cluster and one topic, nothing but the same batch will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from duralog.columnar.pieces import read_pieces
from duralog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from duralog.format.checkpoints import EpochStart
from duralog.format.layout import DELETE_HORIZON_BIT, NO_LEADER_EPOCH
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import epoch_at
from duralog.scanning.logs import Logs
from duralog.scanning.remote_work import side_by_side
from duralog.spark.lake.made_from import MadeFrom
from duralog.spark.lake.table_state import StateRefused, TableState
from duralog.storage.log.readable_log import ReadableLog
from duralog.storage.log.view import LogView

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
    attributes: int = 0

    @classmethod
    def of(cls, found: Any) -> LogEnd:
        """Of a row of `BATCH_DTYPE`."""
        return cls(**{name: int(found[name]) for name in cls.__dataclass_fields__})

    def is_left_of(self, found: LogEnd) -> bool:
        """Whether this batch can have become the one that is there now, in the same directory."""
        if found.magic > self.magic or self.is_same(found):
            return True
        if found.magic < _CURRENT_MAGIC:
            # The contents and the first offset of a compressed message are unknown without decompression.
            return found.magic == self.magic and _UNKNOWN in (self.record_count, found.record_count)
        has_less = found.record_count < self.record_count
        return self._is_in_same_place(found) and (has_less or found._has_horizon)

    def is_copy_of(self, found: LogEnd) -> bool:
        """Whether both can be the same batch in two copies of the log, which are compacted at different times."""
        if self.magic == found.magic == _CURRENT_MAGIC:
            is_compacted = self._is_compacted or found._is_compacted
            return self.is_same(found) or (is_compacted and self._is_in_same_place(found))
        return self.is_left_of(found)

    def is_same(self, found: LogEnd) -> bool:
        return self._is_in_same_place(found) and found.crc == self.crc

    def _is_in_same_place(self, found: LogEnd) -> bool:
        names = ("magic", "base_offset", "last_offset", "leader_epoch")
        return all(getattr(found, name) == getattr(self, name) for name in names)

    @property
    def _has_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def _is_compacted(self) -> bool:
        return self._has_horizon or self.record_count < self.last_offset - self.base_offset + 1

    def __str__(self) -> str:
        return f"offsets {max(self.base_offset, 0)} to {self.last_offset} with {self.crc:#010x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """What a state knows of the end of a log."""

    epoch: int
    """Of the last offset that was taken."""
    batch: LogEnd | None


def remember_ends(logs: Logs, before: TableState, after: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """The ends of the logs at these offsets, as JSON values. What was taken no further keeps what is known of it."""
    known = dict(before.details.get(DETAIL, {}))
    new = [item for item in sorted(after.items()) if before.next_offsets.get(item[0].partition) != item[1]]

    def look(item: tuple[TopicPartition, int]) -> dict[str, Any]:
        partition, end_offset = item
        batch, history = _batch_of(logs, partition, end_offset - 1), logs.history(partition)
        if history is None:
            epoch = logs.log(partition).leader_epochs.epoch_for(end_offset - 1)
        else:
            epoch = epoch_at(history, end_offset - 1)
        return {"epoch": epoch, "batch": None if batch is None else asdict(batch)}

    found = side_by_side(look, new, is_remote=logs.is_remote)
    return {**known, **{str(partition.partition): end for (partition, _), end in zip(new, found, strict=True)}}


def check_ends(
    logs: Logs, before: TableState, partitions: list[TopicPartition], *, where: str, taken: str, advice: str
) -> None:
    """Raise unless the logs continue where the last run ended.

    `taken` says in the error what the job did up to an offset, `advice` what its user can do.
    """
    ends = before.details.get(DETAIL, {})
    is_trusted = bool(partitions) and _is_same_cluster(logs, before, partitions[0].topic, where)

    def check(partition: TopicPartition) -> None:
        number = partition.partition
        offset = before.next_offsets.get(number, 0)
        known = _parsed(ends.get(str(number)), where) if isinstance(ends, dict) else None
        history, end_offset = logs.history(partition), logs.end_offset(partition)
        name = f"{partition.topic}-{number} {taken} offset {offset}"
        if history is None:
            if offset > end_offset:
                raise OffsetOutOfRange(f"{name}, but the log ends at {end_offset}: it was cut, or made again. {advice}")
            difference = None if known is None else _difference(logs.log(partition), offset, known, where)
            cause = "It was cut and written again, or made again."
        elif offset:
            difference = _difference_of_epochs(known, history, offset)
            if difference is None and offset > end_offset:
                raise OffsetOutOfRange(
                    f"{name}, but in these directories the log ends at {end_offset}: directories are missing, or these"
                    f" are older than those of the last run. Give all of them, or newer ones. {advice}"
                )
            if difference is None and offset > logs.start_offset(partition):
                found = _batch_of(logs, partition, offset - 1)
                difference = _difference_of_copies(known, found, offset, where, is_trusted=is_trusted)
            cause = "Another copy counts now, as after an unclean election, or it is another log."
        else:
            return
        if difference is not None:
            raise StateRefused(f"{name}, but the log has other records there now: {difference}. {cause} {advice}")

    for _ in side_by_side(check, partitions, is_remote=logs.is_remote):
        pass


def _is_same_cluster(logs: Logs, before: TableState, topic: str, where: str) -> bool:
    """Whether leader epochs of the last run and of this one are certainly of the same log."""
    made_from = MadeFrom.in_state(before, where)
    known = None if made_from is None else made_from.cluster_id
    if known is not None and logs.cluster_id is not None:
        return known == logs.cluster_id
    return before.topic_id is not None and before.topic_id == logs.topic_id(topic)


def _difference(log: ReadableLog, end_offset: int, known: _Remembered, where: str) -> str | None:
    """How the log differs from what is known of it before the offset; None if it does not, or if this is unknown."""
    if end_offset <= log.start_offset:
        return None
    ended = log.leader_epochs.end_offset_for(known.epoch, log.end_offset)
    if 0 <= ended.start_offset < end_offset:
        return f"leader epoch {known.epoch} wrote offset {end_offset - 1}, and ends at {ended.start_offset} now"
    found = _batch_in([log.view], end_offset - 1)
    if known.batch is None or found is None or known.batch.is_left_of(found):
        return None
    return _other_batch(known.batch, found, end_offset, where)


def _difference_of_epochs(known: _Remembered | None, history: Sequence[EpochStart], end_offset: int) -> str | None:
    """What leader epochs say against it that the log continues. None if they say nothing, too."""
    if known is None or not history:
        return None
    epoch = known.epoch
    if known.batch is not None and known.batch.leader_epoch != NO_LEADER_EPOCH:
        epoch = known.batch.leader_epoch
    wrote = f"leader epoch {epoch} wrote offset {end_offset - 1}"
    now = epoch_at(history, end_offset - 1)
    if epoch in (NO_LEADER_EPOCH, now):
        return None
    if now != NO_LEADER_EPOCH:
        return f"{wrote}, and by the history of the copy that counts it is of epoch {now}"
    # The log has deleted it since.
    return f"{wrote}, and the log begins with epoch {history[0].epoch} now" if epoch > history[0].epoch else None


def _difference_of_copies(
    known: _Remembered | None, found: LogEnd | None, end_offset: int, where: str, *, is_trusted: bool
) -> str | None:
    """REQUIRES: the epochs do not contradict."""
    batch = None if known is None else known.batch
    if batch is not None and found is not None:
        is_same = batch.is_copy_of(found) if is_trusted else batch.is_same(found)
        return None if is_same else _other_batch(batch, found, end_offset, where)
    if known is not None and is_trusted:
        return None
    lacking = f"the state of {where}" if batch is None else "none of the copies"
    return (
        f"nothing shows that they are the same: {lacking} has no batch with offset {end_offset - 1}, and it is not"
        " certain that the directories are of the same cluster"
    )


def _other_batch(known: LogEnd, found: LogEnd, end_offset: int, where: str) -> str:
    return (
        f"the batch with offset {end_offset - 1} goes to {known.last_offset} and has checksum {known.crc:#010x} in"
        f" the state of {where}, and is that of {found} in the log"
    )


def _parsed(known: Any, where: str) -> _Remembered | None:
    if known is None:
        return None
    try:
        epoch, batch = known["epoch"], known["batch"]
        values = [epoch] if batch is None else [epoch, *batch.values()]
        if not all(type(value) is int for value in values):
            raise ValueError(values)
        return _Remembered(epoch=epoch, batch=None if batch is None else LogEnd(**batch))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateRefused(f"{where}: the state is damaged: {known!r} is not an end of a log") from error


def _batch_of(logs: Logs, partition: TopicPartition, offset: int) -> LogEnd | None:
    return _batch_in(logs.views_with(partition, offset), offset, logs.history(partition))


def _batch_in(views: Iterable[LogView], offset: int, history: Sequence[EpochStart] | None = None) -> LogEnd | None:
    """The batch with this offset; None if there is none, as after a compaction.

    Of several copies, with the history of the log, that of the first one that has it without damage.
    """
    for view in views:
        if history is None:
            row = _batch_with(view, offset)
            return None if row is None else LogEnd.of(row)
        with suppress(CorruptRecord, StorageError):  # Another copy may be sound.
            row = _batch_with(view, offset)
            if row is not None and row["crc_ok"] == 1 and _is_of(history, row):
                return LogEnd.of(row)
    return None


def _is_of(history: Sequence[EpochStart], row: Any) -> bool:
    expected = epoch_at(history, int(row["base_offset"]))
    return NO_LEADER_EPOCH in (expected, int(row["leader_epoch"])) or expected == int(row["leader_epoch"])


def _batch_with(view: LogView, offset: int) -> Any:
    """The header of the batch with this offset; None if there is none."""
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
