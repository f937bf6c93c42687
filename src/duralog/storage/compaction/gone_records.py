"""The records that a compaction would remove from a piece of a log, one by one, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.compacting import BatchVerdict, CompactedPiece
from duralog.columnar.pieces import DecodedRecords, MemorySource, read_pieces
from duralog.errors import CorruptRecord
from duralog.format.layout import CONTROL_BIT
from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import OffsetMap
from duralog.storage.compaction.compact import PreviewedPiece


class Reason(StrEnum):
    SUPERSEDED = "superseded"
    EXPIRED = "expired tombstone"
    KEYLESS = "no key"
    ABORTED = "aborted transaction"
    MARKER = "spent marker"


@dataclass(frozen=True, slots=True)
class GoneRecord:
    offset: int
    reason: Reason
    key: bytes | None
    superseded_by: int | None = None
    """The offset of the last record with this key."""


def gone_records(found: PreviewedPiece, offset_map: OffsetMap, most: int) -> list[GoneRecord]:
    """The first records that would go, at most `most`. Damaged batches stay as they are, and lose none."""
    gone: list[GoneRecord] = []
    kept = _offsets(found.compacted)
    for decoded in found.piece.decode(on_corrupt=_pass):
        rows = np.flatnonzero(~np.isin(decoded.columns.offset, kept))[: most - len(gone)]
        gone += _with_reasons(found, decoded, rows, offset_map)
        if len(gone) == most:
            break
    return gone


def _with_reasons(
    found: PreviewedPiece, decoded: DecodedRecords, rows: NDArray[np.intp], offset_map: OffsetMap
) -> Iterator[GoneRecord]:
    columns, batch_rows = decoded.columns, decoded.batch_row[rows]
    mapped = _mapped(decoded, rows, offset_map)
    is_control = found.piece.batches["attributes"][batch_rows] & CONTROL_BIT != 0
    is_whole = np.isin(found.verdicts[batch_rows], (BatchVerdict.DROP, BatchVerdict.EMPTY))
    for place, row in enumerate(rows.tolist()):
        offset = int(columns.offset[row])
        start, length = int(columns.key_position[row]), int(columns.key_length[row])
        key = decoded.data[start : start + length].tobytes() if length >= 0 else None
        if is_control[place]:
            yield GoneRecord(offset, Reason.MARKER, None)
        elif is_whole[place]:
            yield GoneRecord(offset, Reason.ABORTED, key)
        elif key is None:
            yield GoneRecord(offset, Reason.KEYLESS, None)
        elif mapped[place] > offset:
            yield GoneRecord(offset, Reason.SUPERSEDED, key, int(mapped[place]))
        else:
            yield GoneRecord(offset, Reason.EXPIRED, key)


def _mapped(decoded: DecodedRecords, rows: NDArray[np.intp], offset_map: OffsetMap) -> NDArray[np.int64]:
    """The last offset of each record's key; -1 for a record without one, or whose key is not in the map."""
    columns = decoded.columns
    mapped = np.full(len(rows), -1, np.int64)
    has_key = columns.key_length[rows] >= 0
    keyed = rows[has_key]
    mapped[has_key] = offset_map.find(digests_of(decoded.data, columns.key_position[keyed], columns.key_length[keyed]))
    return mapped


def _offsets(compacted: CompactedPiece) -> NDArray[np.int64]:
    """Of all records that are left."""
    source = MemorySource(b"".join(compacted.buffers))
    found = [
        decoded.columns.offset
        for piece in read_pieces(source, check_crc=False)
        for decoded in piece.decode(on_corrupt=_pass)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _pass(_error: CorruptRecord, _row: int) -> None:
    pass
