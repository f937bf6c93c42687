"""The second pass of compaction, one piece of a log at a time: what survives, and the bytes that hold it.

The caller says what becomes of each batch as a whole (`BatchVerdict`); which records of a filtered batch survive is
decided here, by the offset map of the first pass (`SurvivalRules`). The result is what a segment takes: buffers, and a
row for each batch in them.

What must always be true:
- Offsets, order, keys, values, headers and timestamps never change. A batch keeps its base offset, last offset delta,
  producer fields and leader epoch, even when it loses its last record.
- A batch that keeps all its records is copied as bytes, unless it needs a delete horizon.
- A batch with a wrong checksum, or that cannot be decoded, is reported and copied as it is, whatever its verdict. It is
  never dropped, and never given a new checksum.

Nothing shared is changed: pieces can be compacted by several threads at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.columnar.python_records import to_records
from duralog.columnar.refusals import OnCorrupt, Refusals, batch_of, wrong_checksum
from duralog.errors import CorruptRecord, InvalidRecord
from duralog.format import message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.layout import DELETE_HORIZON_BIT
from duralog.format.record import Record, TimestampType
from duralog.format.varint import Bytes, as_int64
from duralog.kernels.columns import BATCH_DTYPE


class BatchVerdict(IntEnum):
    """What becomes of a batch."""

    DROP = 0
    """All of it goes."""
    AS_IS = 1
    """Its bytes are copied, whatever is in them."""
    FILTER = 2
    """Its records are judged one by one. If none survives, it goes."""
    FILTER_KEEP_EMPTY = 3
    """The same, but its header stays if no record does."""
    EMPTY = 4
    """Its records go, its header stays."""
    CONTROL = 5
    """Its records stay."""
    CONTROL_EMPTIED = 6
    """Its records stay. It ends a transaction that has no records left, and gets a delete horizon if it has none."""


class MappedOffsets(Protocol):
    """What is asked of an offset map."""

    @property
    def latest_offset(self) -> int: ...

    def find(self, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The offset of each key, -1 where it is not in the map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalRules:
    """What decides about a record of a filtered batch."""

    offset_map: MappedOffsets
    round_ms: int
    """When the round began: delete horizons up to it have passed, new ones are counted from it."""
    delete_retention_ms: int
    keep_legacy_tombstones: bool
    """Formats v0 and v1 have no delete horizon: whether the file is too young to lose its tombstones."""


@dataclass(slots=True)
class CompactedPiece:
    """What is left of a piece."""

    buffers: Sequence[Bytes] = ()
    batches: NDArray[Any] = field(default_factory=lambda: np.empty(0, BATCH_DTYPE))
    """A row (`BATCH_DTYPE`) for each batch in the buffers; positions count from their first byte."""
    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    """Records that went because a later one has their key."""
    expired_tombstones: int = 0
    keyless: int = 0
    """Records that went because they have no key: a compacted log should have none."""
    kept_tombstones: int = 0
    """Records without a value that stayed."""
    rebuilt_batches: int = 0

    @property
    def size_bytes(self) -> int:
        return int(self.batches["size"].sum(dtype=np.int64))

    @property
    def delete_horizons_ms(self) -> NDArray[np.int64]:
        """The horizons of the batches that have one, in their order."""
        has_horizon = (self.batches["attributes"] & DELETE_HORIZON_BIT != 0) & (self.batches["magic"] == 2)
        horizons: NDArray[np.int64] = self.batches["base_timestamp"][has_horizon]
        return horizons


def compact_piece(
    piece: Piece, verdicts: NDArray[np.int8], rules: SurvivalRules, *, on_corrupt: OnCorrupt
) -> CompactedPiece:
    """Compact the batches of a piece; `verdicts` has one `BatchVerdict` for each of `piece.batches`."""
    return _Compaction(piece, verdicts, rules, on_corrupt).run()


class _Compaction:
    def __init__(self, piece: Piece, verdicts: NDArray[np.int8], rules: SurvivalRules, on_corrupt: OnCorrupt) -> None:
        self._piece = piece
        self._verdicts = verdicts
        self._rules = rules
        self._on_corrupt = on_corrupt
        self._result = CompactedPiece()
        self._parts: list[Bytes] = []

    def run(self) -> CompactedPiece:
        for row in range(len(self._piece.batches)):
            self._compact(row)
        joined = b"".join(self._parts)
        if joined:
            (whole,) = read_pieces(MemorySource(joined), piece_bytes=len(joined))
            self._result.buffers = [joined]
            self._result.batches = whole.batches
        return self._result

    def _compact(self, row: int) -> None:
        header = self._piece.batches[row]
        verdict = BatchVerdict(self._verdicts[row])
        begin = int(header["position"]) - self._piece.position
        source = self._piece.data[begin : begin + int(header["size"])]
        result = self._result
        batch = batch_of(header, 0)
        if verdict is not BatchVerdict.AS_IS and header["crc_ok"] == 0:
            refusals = Refusals(self._piece.name, self._piece.batches, self._on_corrupt)
            refusals.refuse(row, wrong_checksum(header, source))
            verdict = BatchVerdict.AS_IS
        if verdict is BatchVerdict.EMPTY and batch.magic < 2:
            verdict = BatchVerdict.DROP
        if verdict in (BatchVerdict.AS_IS, BatchVerdict.DROP, BatchVerdict.EMPTY):
            result.records_read += max(batch.record_count, 0)
            if verdict is BatchVerdict.AS_IS:
                result.records_kept += max(batch.record_count, 0)
                self._parts.append(source.data)
            elif verdict is BatchVerdict.EMPTY:
                self._parts.append(_emptied(batch))
                result.rebuilt_batches += 1
            return

        refused: list[int] = []

        def report(error: CorruptRecord, row: int) -> None:
            refused.append(row)
            self._on_corrupt(error, row)

        is_control = verdict in (BatchVerdict.CONTROL, BatchVerdict.CONTROL_EMPTIED)
        kept: list[Record] = []
        read = 0
        tallies = [0, 0, 0]
        for decoded in self._piece.decode(np.array([row]), on_corrupt=report):
            read += len(decoded)
            keep = np.ones(len(decoded), bool) if is_control else self._judge(decoded, batch, tallies)
            kept += [record for record, stays in zip(to_records(decoded), keep, strict=True) if stays]
        if refused:
            self._parts.append(source.data)
            return
        result.records_read += read
        result.keyless += tallies[0]
        result.superseded += tallies[1]
        result.expired_tombstones += tallies[2]
        result.records_kept += len(kept)
        tombstones = sum(record.value is None for record in kept)
        result.kept_tombstones += tombstones
        if not kept:
            if is_control:
                self._parts.append(source.data)
            elif verdict is BatchVerdict.FILTER_KEEP_EMPTY and batch.magic == 2:
                self._parts.append(_emptied(batch))
                result.rebuilt_batches += 1
            return
        needs_horizon = (
            batch.magic == 2
            and batch.delete_horizon_ms is None
            and (tombstones > 0 or verdict is BatchVerdict.CONTROL_EMPTIED)
        )
        if len(kept) == read and not needs_horizon:
            self._parts.append(source.data)
            return
        try:
            self._parts.append(self._rebuilt(batch, kept, needs_horizon))
        except InvalidRecord:
            self._parts.append(source.data)
        else:
            result.rebuilt_batches += 1

    def _judge(self, decoded: DecodedRecords, batch: Batch, tallies: list[int]) -> NDArray[np.bool_]:
        columns = decoded.columns
        has_key = columns.key_length >= 0
        found = np.full(len(decoded), -1, np.int64)
        found[has_key] = self._rules.offset_map.find(
            _digests(decoded.data, columns.key_position[has_key], columns.key_length[has_key])
        )
        horizon_ms = batch.delete_horizon_ms
        if batch.magic < 2:
            keeps_tombstones = self._rules.keep_legacy_tombstones
        else:
            keeps_tombstones = horizon_ms is None or self._rules.round_ms < horizon_ms
        is_mapped = columns.offset <= self._rules.offset_map.latest_offset
        keyless = is_mapped & ~has_key
        superseded = is_mapped & has_key & (columns.offset < found)
        expired = is_mapped & has_key & ~superseded & (columns.value_length < 0) & (not keeps_tombstones)
        tallies[0] += int(keyless.sum())
        tallies[1] += int(superseded.sum())
        tallies[2] += int(expired.sum())
        keep: NDArray[np.bool_] = ~(keyless | superseded | expired)
        return keep

    def _rebuilt(self, batch: Batch, kept: list[Record], needs_horizon: bool) -> bytes:
        append_time_ms = batch.max_timestamp_ms if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        if batch.magic < 2:
            return message_set.encode(
                kept,
                magic=batch.magic,
                base_offset=kept[0].offset,
                codec=Codec(batch.codec_id),
                timestamp_type=batch.timestamp_type,
                append_time_ms=append_time_ms,
            )
        horizon_ms = batch.delete_horizon_ms
        if needs_horizon:
            horizon_ms = as_int64(self._rules.round_ms + self._rules.delete_retention_ms)
        return record_batch.encode(
            kept,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            codec=Codec(batch.codec_id),
            leader_epoch=batch.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            timestamp_type=batch.timestamp_type,
            append_time_ms=append_time_ms,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            delete_horizon_ms=horizon_ms if horizon_ms is not None and horizon_ms >= 0 else None,
        )


def _emptied(batch: Batch) -> bytes:
    return record_batch.encode(
        [],
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=batch.timestamp_type,
        append_time_ms=batch.max_timestamp_ms,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        max_timestamp_ms=batch.max_timestamp_ms,
    )


def _digests(
    data: NDArray[np.uint8], key_position: NDArray[np.int64], key_length: NDArray[np.int32]
) -> NDArray[np.uint64]:
    view = data.data
    joined = b"".join(
        hashlib.md5(view[at : at + length], usedforsecurity=False).digest()
        for at, length in zip(key_position.tolist(), key_length.tolist(), strict=True)
    )
    return np.frombuffer(bytearray(joined), np.uint64).reshape(-1, 2)
