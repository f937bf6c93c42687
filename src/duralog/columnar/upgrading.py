"""Messages of format v0 and v1 as record batches of format v2: the same records, offsets and timestamps.

What becomes one batch:

- A compressed message, which is a batch in all but name, with its codec. One that unpacks to more records than a chunk
  takes (`decoded.CHUNK_RECORDS`, `CHUNK_BYTES`) becomes several.
- Plain messages that follow each other, up to `batch_bytes` of them: Kafka, too, puts messages that it converts into
  batches. With log append time a batch has one timestamp, so only messages of the same time share one.

Nothing else changes: a v0 message has no timestamp, and its record has none either (-1, create time); a null key or
value stays null; gaps between offsets stay. v2 batches are passed through, byte for byte. What cannot be decoded raises
`CorruptRecord`, and what v2 cannot hold `InvalidRecord`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.encode_columns import (
    DEFAULT_BATCH_BYTES,
    BatchSettings,
    EncodedBatches,
    WritableColumns,
    encode_columns,
)
from duralog.columnar.pieces import Piece
from duralog.columnar.record_digest import RecordDigest
from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.compression import Codec
from duralog.format.layout import CODEC_MASK, LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from duralog.format.record import TimestampType
from duralog.kernels.encode import MAX_RECORDS_BYTES, BinaryColumn
from duralog.kernels.gather import PADDING, gather

_V2 = 2
_RECORD_OVERHEAD = 64
"""More than the lengths, deltas and the count of headers of a record take."""


class UpgradedRun(NamedTuple):
    """Batches of format v2 that follow each other."""

    data: NDArray[np.uint8]
    batches: NDArray[Any]
    """`BATCH_DTYPE`; positions count in `data`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRules:
    codec: Codec | None = None
    """For all messages; None: compressed ones keep theirs, and plain ones stay plain."""
    level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """Of plain messages, before compression."""


def has_legacy(batches: NDArray[Any]) -> bool:
    return bool((batches["magic"] < _V2).any())


def upgrade_piece(piece: Piece, rules: UpgradeRules, digest: RecordDigest) -> Iterator[UpgradedRun]:
    """All batches of the piece, in order, in format v2. `digest` takes in every record, as it was before."""
    rows = piece.batches
    is_v2 = rows["magic"] == _V2
    for first, end in _stretches(is_v2):
        chosen = np.arange(first, end, dtype=np.intp)
        if is_v2[first]:
            for decoded in piece.decode(chosen):
                digest.add(decoded)
            yield _as_it_is(piece, rows[first:end])
        else:
            for decoded in piece.decode(chosen):
                digest.add(decoded)
                _check_order(piece, decoded)
                yield from _upgrade_chunk(decoded, rules)


def _stretches(values: NDArray[Any]) -> list[tuple[int, int]]:
    """Where equal neighbours begin and end."""
    edges = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return list(pairwise(edges)) if len(values) else []


def _as_it_is(piece: Piece, batches: NDArray[Any]) -> UpgradedRun:
    begin = int(batches["position"][0]) - piece.position
    end = int(batches["position"][-1]) + int(batches["size"][-1]) - piece.position
    moved = batches.copy()
    moved["position"] -= batches["position"][0]
    return UpgradedRun(piece.data[begin:end], moved)


def _check_order(piece: Piece, decoded: DecodedRecords) -> None:
    """Offsets inside of a compressed message may be in any order; in a v2 batch they must rise."""
    offsets = decoded.columns.offset
    wrong = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(wrong):
        row = int(wrong[0]) + 1
        batch = decoded.batches[int(decoded.batch_row[row])]
        raise CorruptRecord(
            "the offsets of messages do not rise, so they cannot become a batch",
            fault=Fault.INNER_OFFSET,
            file=piece.name,
            position=int(batch["position"]),
            expected=f"above {offsets[row - 1]}",
            found=int(offsets[row]),
        )


def _upgrade_chunk(decoded: DecodedRecords, rules: UpgradeRules) -> Iterator[UpgradedRun]:
    columns = _writable(decoded)
    batches = decoded.batches[decoded.batch_row]
    codec = batches["attributes"] & CODEC_MASK
    is_append_time = (batches["magic"] > 0) & (batches["attributes"] & LOG_APPEND_TIME_BIT != 0)
    # Plain messages are one stretch, and so is each compressed one; log append time parts them where it changes.
    stretch = np.where(codec == 0, -1, decoded.batch_row)
    time = np.where(is_append_time, columns.timestamp, NO_TIMESTAMP - 1)
    is_new = (stretch[1:] != stretch[:-1]) | (is_append_time[1:] != is_append_time[:-1]) | (time[1:] != time[:-1])
    edges = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(columns.offset)]
    for first, end in pairwise(edges):
        part = _part(columns, first, end)
        batch_bytes = rules.batch_bytes if codec[first] == 0 else _bound(part)
        yield _encoded(part, rules, Codec(int(codec[first])), batch_bytes, is_append_time=bool(is_append_time[first]))


def _encoded(
    part: WritableColumns, rules: UpgradeRules, own_codec: Codec, batch_bytes: int, *, is_append_time: bool
) -> UpgradedRun:
    timestamp_type = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
    encoded: EncodedBatches = encode_columns(
        part,
        BatchSettings(
            codec=own_codec if rules.codec is None else rules.codec,
            level=rules.level,
            batch_bytes=batch_bytes,
            timestamp_type=timestamp_type,
            append_time_ms=int(part.timestamp[0]) if is_append_time else None,
        ),
    )
    return UpgradedRun(encoded.data, encoded.batches)


def _writable(decoded: DecodedRecords) -> WritableColumns:
    columns = decoded.columns
    if columns.timestamp.min(initial=0) < NO_TIMESTAMP:
        row = int(np.argmin(columns.timestamp))
        raise InvalidRecord(
            f"the record of offset {columns.offset[row]} has the timestamp {columns.timestamp[row]}:"
            f" format v2 has none before 1970, except {NO_TIMESTAMP} for none at all"
        )
    rows = len(columns)
    no_headers = BinaryColumn(
        _frozen(np.arange(rows + 1, dtype=np.int64)), _frozen(np.zeros(rows, np.uint8)), _NO_BYTES, 0
    )
    return WritableColumns(
        _frozen(columns.offset),
        _frozen(columns.timestamp),
        _gathered(decoded.data, columns.key_position, columns.key_length),
        _gathered(decoded.data, columns.value_position, columns.value_length),
        no_headers,
    )


def _gathered(data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32]) -> BinaryColumn:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    out = np.empty(int(offsets[-1]) + PADDING, np.uint8)
    if gather(data, positions, lengths, out) != len(positions):
        raise ValueError("the records do not lie within the data that they came from")
    is_null = lengths < 0
    validity = np.packbits(~is_null, bitorder="little") if is_null.any() else _NO_BYTES
    return BinaryColumn(_frozen(offsets), _frozen(out), _frozen(validity), 0)


_NO_BYTES = np.frombuffer(b"", np.uint8)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Read-only, as the kernels' signatures say."""
    array = np.require(array, requirements=["C", "A"]).view()
    array.flags.writeable = False
    return array


def _part(columns: WritableColumns, first: int, end: int) -> WritableColumns:
    def part(column: BinaryColumn) -> BinaryColumn:
        return column._replace(offsets=column.offsets[first : end + 1], first_bit=column.first_bit + first)

    return WritableColumns(
        columns.offset[first:end],
        columns.timestamp[first:end],
        part(columns.key),
        part(columns.value),
        part(columns.headers),
    )


def _bound(part: WritableColumns) -> int:
    """At least what the records take when they are encoded, so that they become one batch."""
    content = sum(int(column.offsets[-1] - column.offsets[0]) for column in (part.key, part.value))
    return min(content + _RECORD_OVERHEAD * len(part.offset), int(MAX_RECORDS_BYTES))
