"""What may be appended to a log, and the bytes that are written for it. Kafka's `LogValidator`.

A client's batch is checked completely: its header, its checksum, the structure of every record, and the rules of its
topic. Then its base offset and leader epoch, which are not covered by the checksum, are written into the given buffer.
The largest timestamp and its type are corrected, with the checksum, only if they are wrong. So the bytes of a correct
client reach the disk unchanged. A batch is rebuilt if the topic wants another codec, or if the offsets inside are not
consecutive. In the second case Kafka rebuilds only compressed batches, and stores the wrong offsets of others.

Batches of `AppendOrigin.AS_IS` keep every byte: only their headers, checksums and the order of offsets are checked. The
same holds for `AppendOrigin.RESTORED`, but a leader epoch of -1 becomes that of the log.

An append is all or nothing. An error says where it is: `CorruptRecord` for bytes that are not a batch (the position
counts in the given bytes), `InvalidRecord` and its subclasses for a batch that the topic does not accept. After an
error the buffer may hold new offsets and epochs, but nothing else has changed. An incomplete batch at the end is
ignored, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.columnar.refusals import wrong_checksum
from duralog.config import TopicConfig
from duralog.errors import InvalidRecord
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.format.layout import BATCH_V2, NO_LEADER_EPOCH, NO_TIMESTAMP
from duralog.format.record_batch import MAGIC
from duralog.format.varint import Bytes
from duralog.storage.append.batch_admission import Admission, Stamp
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.producer_batch import ProducerBatch, producer_batches
from duralog.storage.segment.batch_extents import Extent, extents

_AS_IS = AppendOrigin.AS_IS
_RESTORED = AppendOrigin.RESTORED
_EPOCH_BYTES = np.arange(BATCH_V2.at.leader_epoch, BATCH_V2.at.leader_epoch + 4)


class ValidBatches(NamedTuple):
    """Batches that are ready to be written."""

    buffers: Sequence[Bytes]
    """To be written in this order. They are views of the given buffer, unless a batch was rebuilt."""
    extents: Sequence[Extent]
    """One for each batch. Positions are relative to the first byte of the buffers."""
    producer_batches: Sequence[ProducerBatch]
    """The batches with a producer id."""
    base_offset: int
    """Of the first batch; -1 for a compressed message of an old format, whose first offset is not known."""
    last_offset: int
    max_timestamp_ms: int
    append_time_ms: int
    """The log append time of all records, if the topic uses it; otherwise -1."""
    size_bytes: int
    rows: NDArray[Any] | None = None
    """The headers of the batches (`BATCH_DTYPE`), if they are written as they are."""


_as_valid: Callable[[tuple[object, ...]], ValidBatches] = partial(tuple.__new__, ValidBatches)
"""Like `ValidBatches._make`, but twice as fast."""


def validate(
    data: Bytes,
    *,
    config: TopicConfig,
    stamp: Stamp,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    is_quick: bool = False,
) -> ValidBatches:
    """Check the batches in `data`, and give them offsets from `stamp.next_offset` on.

    With `is_quick`, a batch that takes long to check raises `TakesLong`. Offsets and epochs are written into `data` if
    it is writable; otherwise it is copied. A batch with a producer id must be the only one of its append, as Kafka
    requires of every batch: so the response for a duplicate is unambiguous.
    """
    if origin is _AS_IS:
        return _validate_as_is(data, stamp.next_offset)
    view = memoryview(data)
    if view.readonly:
        view = memoryview(bytearray(view))
    if origin is _RESTORED:
        return _in_epoch(_validate_as_is(view, stamp.next_offset), stamp.leader_epoch)
    admission = Admission(view, config, stamp, origin, max_decompressed_bytes, is_quick)
    position = 0
    while position < len(view):
        size = admission.admit(position)
        if size == 0:
            break
        position += size
    if len(admission.extents) != 1:
        _check_several(admission)
    return _as_valid(
        (
            admission.buffers,
            admission.extents,
            admission.producer_batches,
            stamp.next_offset,
            admission.next_offset - 1,
            admission.max_timestamp_ms,
            admission.append_time_ms,
            admission.size_bytes,
            None,
        )
    )


def _check_several(admission: Admission) -> None:
    others = len(admission.extents) - 1
    if others < 0:
        raise InvalidRecord("there is no complete batch in the bytes to append")
    if admission.producer_batches:
        raise InvalidRecord(f"a batch with a producer id is appended alone, not together with {others} more")


def _validate_as_is(data: Bytes, next_offset: int) -> ValidBatches:
    view = memoryview(data)
    source = MemorySource(view)
    pieces = list(read_pieces(source, piece_bytes=max(source.size, 1)))
    if not pieces or not len(pieces[0].batches):
        raise InvalidRecord("there is no complete batch in the bytes to append")
    (piece,) = pieces
    if piece.fault is not None:
        piece.fault.file = None
        raise piece.fault
    rows = piece.batches
    wrong = np.flatnonzero(rows["crc_ok"] == 0)
    if len(wrong):
        row = rows[wrong[0]]
        start = int(row["position"])
        error = wrong_checksum(row, piece.data[start : start + int(row["size"])])
        error.position = start
        raise error
    _check_order(rows, next_offset)
    size_bytes = int(rows["position"][-1] + rows["size"][-1])
    return ValidBatches(
        [view[:size_bytes]],
        extents(rows),
        list(producer_batches(rows, lambda position, size: view[position : position + size])),
        int(rows["base_offset"][0]),
        int(rows["last_offset"][-1]),
        int(rows["max_timestamp"].max()),
        NO_TIMESTAMP,
        size_bytes,
        rows,
    )


def _in_epoch(batches: ValidBatches, leader_epoch: int) -> ValidBatches:
    """The same batches; those without a leader epoch get this one. The checksum does not cover it."""
    rows = batches.rows
    assert rows is not None
    (buffer,) = batches.buffers
    stamped = np.flatnonzero((rows["leader_epoch"] == NO_LEADER_EPOCH) & (rows["magic"] == MAGIC))
    where = rows["position"][stamped][:, None] + _EPOCH_BYTES
    np.frombuffer(buffer, np.uint8)[where] = np.frombuffer(leader_epoch.to_bytes(4, signed=True), np.uint8)
    rows["leader_epoch"][stamped] = leader_epoch
    return batches


def _check_order(rows: NDArray[Any], next_offset: int) -> None:
    """Each batch must be above the one before it. Of a compressed legacy message, only the last offset is known."""
    last = rows["last_offset"]
    first = np.where(rows["magic"] == MAGIC, rows["base_offset"], last)
    before = np.append(np.int64(next_offset - 1), last[:-1])
    wrong = np.flatnonzero((first <= before) | (last < first))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidRecord(
            f"the batch at {rows['position'][row]} has the offsets {first[row]} to {last[row]},"
            f" but they must begin at {before[row] + 1} or above"
        )
