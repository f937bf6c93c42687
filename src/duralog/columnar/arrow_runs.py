"""Decoding the batches of a piece for Arrow: read and gathered in one go.

What that kernel does not take (old messages, a batch larger than a chunk, one at the very end of the bytes) comes as
decoded records, which are gathered later. The records, their order and the refusals are those of `RunDecoder`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import CHUNK_BYTES, ArrowBinary, Chunk, GatheredRecords
from duralog.columnar.runs import RunDecoder, Span
from duralog.errors import Fault
from duralog.kernels.direct import PADDING, decode_direct


class ArrowDecoder(RunDecoder):
    """Decodes for Arrow only: keys and values are gathered on the way, where whole batches fit a chunk."""

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
                yield from super()._decode_records(span.part(batch, batch + 1), is_packed=is_packed)
                batch += 1

    def _gather(self, span: Span, first: int) -> tuple[int, int, int, GatheredRecords]:
        room = self._room(span, first)
        room_bytes = min(int(np.sum(span.ends[first:] - span.begins[first:])), CHUNK_BYTES) + PADDING
        offset, timestamp, headers_position = (np.empty(room, np.int64) for _ in range(3))
        header_offsets, key_offsets, value_offsets = (np.empty(room + 1, np.int32) for _ in range(3))
        key_bits, value_bits = (np.full((room + 7) // 8, 0xFF, np.uint8) for _ in range(2))
        keys, values = (np.empty(room_bytes, np.uint8) for _ in range(2))
        fault, batch, position, filled = decode_direct(
            *(span.data, span.begins, span.ends, self.batches, span.rows, CHUNK_BYTES, first),
            *(offset, timestamp, headers_position, header_offsets),
            *(key_offsets, key_bits, keys, value_offsets, value_bits, values),
        )
        records = GatheredRecords(
            data=span.data,
            offset=offset[:filled],
            timestamp=timestamp[:filled],
            headers_position=headers_position[:filled],
            header_offsets=header_offsets[: filled + 1],
            keys=_fields(key_offsets[: filled + 1], key_bits, keys),
            values=_fields(value_offsets[: filled + 1], value_bits, values),
            rows=span.rows[first:batch],
            batches=self.batches,
        )
        return fault, batch, position, records


def _fields(offsets: NDArray[np.int32], validity: NDArray[np.uint8], content: NDArray[np.uint8]) -> ArrowBinary:
    # There was room for the worst case, all key or all value. Shrinking in place gives back what is too much.
    content.resize(int(offsets[-1]), refcheck=False)
    return ArrowBinary(offsets, validity[: (len(offsets) + 6) // 8], content)
