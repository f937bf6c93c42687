"""Decodes the batches of a piece directly to Arrow, only the requested columns.

Batches that the kernel does not support (old messages, a batch larger than a chunk, one at the very end of the bytes)
are decoded to records first, which are gathered later. Records, order and refusals are those of `RunDecoder`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import CHUNK_BYTES, CHUNK_RECORDS, ArrowBinary, Chunk, GatheredRecords
from duralog.columnar.runs import RunDecoder, Span
from duralog.errors import Fault
from duralog.kernels.direct import NO_HEADERS, PADDING, decode_direct

_ALL_WITHOUT = np.zeros(CHUNK_RECORDS + 1, np.int32)
"""The header offsets of records without headers."""
_ALL_WITHOUT.flags.writeable = False


@dataclass(frozen=True, slots=True)
class ArrowDecoder(RunDecoder):
    """Decodes for Arrow only: keys and values are gathered while decoding, if whole batches fit a chunk."""

    columns: Collection[str] | None
    """The columns to copy among keys, values and headers. None for all."""

    def _is_wanted(self, name: str) -> bool:
        return self.columns is None or name in self.columns

    def _decode_records(self, span: Span, *, is_packed: bool) -> Iterator[Chunk]:
        batch = 0
        while batch < len(span.rows):
            fault, batch, position, records = self._gather(span, batch)
            if len(records):
                yield records
            if fault != Fault.NONE:
                self._refuse_records(span, batch, Fault(fault), position, is_packed)
                batch += 1
            elif not len(records) and batch < len(span.rows):
                left = span.part(batch, batch + 1)
                yield from RunDecoder._decode_records(self, left, is_packed=is_packed)
                batch += 1

    def _gather(self, span: Span, first: int) -> tuple[int, int, int, GatheredRecords]:
        room = self._room(span, first)
        room_bytes = min(int(np.sum(span.ends[first:] - span.begins[first:])), CHUNK_BYTES) + PADDING
        offset, timestamp = np.empty(room, np.int64), np.empty(room, np.int64)
        keys, values = (_Room.of(room, room_bytes if self._is_wanted(name) else None) for name in ("key", "value"))
        has_headers = self._is_wanted("headers")
        headers_position = np.empty(room if has_headers else 0, np.int64)
        header_offsets = np.empty(room + 1 if has_headers else 0, np.int32)
        fault, batch, position, filled = decode_direct(
            *(span.data, span.begins, span.ends, self.batches, span.rows, CHUNK_BYTES, first),
            *(offset, timestamp, headers_position, header_offsets),
            *(keys.offsets, keys.bits, keys.content, values.offsets, values.bits, values.content),
        )
        records = GatheredRecords(
            data=span.data,
            offset=offset[:filled],
            timestamp=timestamp[:filled],
            headers_position=headers_position[:filled],
            header_offsets=_header_offsets(header_offsets, filled),
            keys=keys.filled(filled),
            values=values.filled(filled),
            rows=span.rows[first:batch],
            batches=self.batches,
        )
        return fault, batch, position, records


def _header_offsets(offsets: NDArray[np.int32], filled: int) -> NDArray[np.int32]:
    if len(offsets) and offsets[0] == NO_HEADERS:
        return _ALL_WITHOUT[: filled + 1]
    return offsets[: filled + 1]


@dataclass(frozen=True, slots=True)
class _Room:
    """For the keys or values of records; empty for none."""

    offsets: NDArray[np.int32]
    bits: NDArray[np.uint8]
    content: NDArray[np.uint8]

    @classmethod
    def of(cls, rows: int, content_bytes: int | None) -> _Room:
        if content_bytes is None:
            return cls(np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.uint8))
        bits = np.full((rows + 7) // 8, 0xFF, np.uint8)
        return cls(np.empty(rows + 1, np.int32), bits, np.empty(content_bytes, np.uint8))

    def filled(self, rows: int) -> ArrowBinary | None:
        if not len(self.offsets):
            return None
        # There was room for the worst case, all key or all value. Shrinking in place frees the surplus.
        self.content.resize(int(self.offsets[rows]), refcheck=False)
        return ArrowBinary(self.offsets[: rows + 1], self.bits[: (rows + 7) // 8], self.content)
