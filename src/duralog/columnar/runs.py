"""Decodes the batches of a piece: runs of batches of one kind are passed to a kernel together.

Plain batches are decoded where they lie. Compressed ones are decompressed into one scratch buffer for several, which
stays at about a quarter of a chunk's size unless a single batch is larger.

A batch is all or nothing. A corrupt one is refused after the records before it were handed on: an error is raised or,
if the caller gave `on_corrupt`, reported there, and decoding continues after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import CHUNK_BYTES, CHUNK_RECORDS, Chunk, DecodedRecords
from duralog.columnar.refusals import Refusals, batch_fault, inner_fault, record_fault, wrong_checksum
from duralog.errors import CorruptRecord, Fault
from duralog.format.compression import Codec, decompress
from duralog.format.layout import BATCH_V2, CODEC_MASK, MIN_BATCH_BYTES
from duralog.format.lz4_frame import MAX_EXPANSION
from duralog.format.varint import Bytes
from duralog.kernels.columns import RecordColumns
from duralog.kernels.decode import CHECK, MIN_RECORD_BYTES, SLICE, WHOLE, decode_batches
from duralog.kernels.direct import PADDING
from duralog.kernels.legacy import check_inner_messages, decode_inner_messages, decode_messages
from duralog.kernels.lz4 import LEFT, ROOM_BYTES, unpack_frames

_SCRATCH_BYTES = CHUNK_BYTES // 4
_LONGEST_RUN = 1024
"""LZ4 frames that are passed to the reference without trying the kernel."""
_CODECS = tuple(Codec)

Rows = NDArray[np.intp]


class _Kind(IntEnum):
    WRONG_CHECKSUM = 0
    UNKNOWN_CODEC = 1
    PLAIN = 2
    PACKED = 3
    PLAIN_MESSAGE = 4
    PACKED_MESSAGE = 5


def _kind_of(magic: int, codec: int) -> _Kind:
    is_message = magic < 2
    if codec > (Codec.LZ4 if is_message else Codec.ZSTD):
        return _Kind.UNKNOWN_CODEC
    if is_message:
        return _Kind.PACKED_MESSAGE if codec else _Kind.PLAIN_MESSAGE
    return _Kind.PACKED if codec else _Kind.PLAIN


_KIND_OF = np.array([[_kind_of(magic, codec) for codec in range(CODEC_MASK + 1)] for magic in range(3)], np.int8)


def _kind(batch: np.void) -> _Kind:
    if not batch["crc_ok"]:
        return _Kind.WRONG_CHECKSUM
    # Plain integers: numpy's take ten times as long to compare.
    return _kind_of(int(batch["magic"]), int(batch["attributes"]) & CODEC_MASK)


def _kinds(batches: NDArray[Any], rows: Rows) -> NDArray[np.int8]:
    """The same of many batches."""
    kinds: NDArray[np.int8] = _KIND_OF[batches["magic"][rows], batches["attributes"][rows] & CODEC_MASK]
    kinds[batches["crc_ok"][rows] == 0] = _Kind.WRONG_CHECKSUM.value
    return kinds


@dataclass(frozen=True, slots=True)
class Span:
    """Where the contents of some batches lie in `data`; `rows` are those of the batches."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    rows: Rows

    def part(self, first: int, end: int) -> Span:
        return Span(self.data, self.begins[first:end], self.ends[first:end], self.rows[first:end])


class _Scratch:
    """Decompressed batches, one after the other in one buffer. The first one always fits."""

    def __init__(self) -> None:
        self._data = np.empty(0, np.uint8)
        self._ends = [0]
        self._rows: list[int] = []

    def add(self, row: int, content: Bytes) -> bool:
        """Whether it fitted."""
        begin = self._ends[-1]
        end = begin + len(content)
        if not self._rows:
            self._data = np.empty(max(_SCRATCH_BYTES, end) + PADDING, np.uint8)
        elif end > len(self._data) - PADDING:
            return False
        self._data[begin:end] = np.frombuffer(content, np.uint8)
        self._ends.append(end)
        self._rows.append(row)
        return True

    def take(self) -> Iterator[Span]:
        """The contents, if any."""
        if self._rows:
            edges = np.array(self._ends, np.int64)
            span = Span(self._data[: self._ends[-1] + PADDING], edges[:-1], edges[1:], np.array(self._rows, np.intp))
            self._ends, self._rows = [0], []
            yield span


@dataclass(frozen=True, slots=True)
class RunDecoder:
    """Decodes batches of one piece. `begins` is where each of `batches` starts in `data`."""

    data: NDArray[np.uint8]
    batches: NDArray[Any]
    begins: NDArray[np.int64]
    max_decompressed_bytes: int
    refusals: Refusals

    def decode(self, rows: Rows) -> Iterator[Chunk]:
        if len(rows) == 1:
            # The fast path for a reader of one record: finding runs takes longer than decoding.
            yield from self._decode_run(_kind(self.batches[rows[0]]), rows)
            return
        kinds = _kinds(self.batches, rows)
        edges = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(rows)]
        for first, end in pairwise(edges):
            if first < end:
                yield from self._decode_run(_Kind(kinds[first]), rows[first:end])

    def _decode_run(self, kind: _Kind, rows: Rows) -> Iterator[Chunk]:
        begins = self.begins[rows]
        ends = begins + self.batches["size"][rows]
        if kind is _Kind.WRONG_CHECKSUM:
            for row in rows:
                self.refusals.refuse(row, wrong_checksum(self.batches[row], self._bytes_of(row)))
        elif kind is _Kind.UNKNOWN_CODEC:
            for row in rows:
                self.refusals.refuse(row, batch_fault(Fault.UNKNOWN_CODEC, self._bytes_of(row), self.batches[row]))
        elif kind is _Kind.PLAIN:
            yield from self._decode_records(Span(self.data, begins + BATCH_V2.size, ends, rows), is_packed=False)
        elif kind is _Kind.PACKED:
            for span in self._unpack(rows, begins + BATCH_V2.size, ends):
                yield from self._decode_records(span, is_packed=True)
        elif kind is _Kind.PLAIN_MESSAGE:
            yield from self._decode_messages(rows, begins)
        else:
            for wrappers in self._decode_messages(rows, begins):
                begins = wrappers.columns.value_position
                for span in self._unpack(wrappers.batch_row, begins, begins + wrappers.columns.value_length):
                    yield from self._decode_inner(span)

    def _unpack(self, rows: NDArray[Any], begins: NDArray[Any], ends: NDArray[Any]) -> Iterator[Span]:
        """Decompress the bytes from each begin to its end; an end before the begin is a null."""
        if np.any(self.batches["attributes"][rows] & CODEC_MASK != Codec.LZ4):
            yield from self._unpack_each(rows, begins, ends)
            return
        bytes_to = np.cumsum(np.maximum(ends - begins, 0))
        number, run = 0, 1
        while number < len(rows):
            first = number
            bytes_left = int(bytes_to[-1]) - (int(bytes_to[first - 1]) if first else 0)
            out = np.empty(min(bytes_left * MAX_EXPANSION, _SCRATCH_BYTES) + ROOM_BYTES + PADDING, np.uint8)
            edges = np.empty(len(rows) + 1, np.int64)
            edges[first] = 0
            number, why = unpack_frames(
                self.data, begins, ends, first, self.max_decompressed_bytes, out[:-PADDING], edges[1:]
            )
            if number > first:
                found = edges[first : number + 1]
                yield Span(out[: found[-1] + PADDING], found[:-1], found[1:], rows[first:number].astype(np.intp))
            if why == LEFT or number == first:
                # If the kernel leaves one, it probably leaves others: they are decoded together, more of them each
                # time.
                run = min(2 * run, _LONGEST_RUN) if why == LEFT and number - first <= run else 1
                left = slice(number, number + run)
                yield from self._unpack_each(rows[left], begins[left], ends[left])
                number += run

    def _unpack_each(self, rows: NDArray[Any], begins: NDArray[Any], ends: NDArray[Any]) -> Iterator[Span]:
        """The same of any codec, one batch at a time."""
        view = self.data.data
        codecs = self.batches["attributes"][rows] & CODEC_MASK
        magics = self.batches["magic"][rows]
        columns = (rows, begins, ends, codecs, magics)
        scratch = _Scratch()
        for row, begin, end, codec, magic in zip(*(column.tolist() for column in columns), strict=True):
            try:
                if end < begin:
                    raise batch_fault(Fault.FIELD_VALUE, self._bytes_of(row), self.batches[row])
                content = decompress(
                    _CODECS[codec], view[begin:end], magic=magic, max_bytes=self.max_decompressed_bytes
                )
            except CorruptRecord as error:
                yield from scratch.take()
                self.refusals.refuse(row, error)
                continue
            if not scratch.add(row, content):
                yield from scratch.take()
                scratch.add(row, content)
        yield from scratch.take()

    def _decode_records(self, span: Span, *, is_packed: bool) -> Iterator[Chunk]:
        batch = 0
        while batch < len(span.rows):
            fault, batch, _, position, records = self._fill(span, WHOLE, batch)
            if len(records):
                yield records
            if fault != Fault.NONE:
                self._refuse_records(span, batch, Fault(fault), position, is_packed)
                batch += 1
            elif not len(records) and batch < len(span.rows):
                yield from self._decode_large(span.part(batch, batch + 1), is_packed=is_packed)
                batch += 1

    def _decode_large(self, span: Span, *, is_packed: bool) -> Iterator[DecodedRecords]:
        """One batch that does not fit a chunk: all of it is checked, then decoded in slices."""
        fault, _, _, position, _ = self._fill(span, CHECK, 0)
        batch, record, next_position = 0, 0, 0
        while fault == Fault.NONE and batch == 0:
            fault, batch, record, position, records = self._fill(span, SLICE, 0, record, next_position)
            next_position = position
            yield records
        if fault != Fault.NONE:
            self._refuse_records(span, 0, Fault(fault), position, is_packed)

    def _fill(
        self, span: Span, mode: int, batch: int, record: int = 0, position: int = 0
    ) -> tuple[int, int, int, int, DecodedRecords]:
        room = self._room(span, batch) if mode != CHECK else 0
        columns, batch_row = RecordColumns.empty(room), np.empty(room, np.int32)
        fault, batch, record, position, filled = decode_batches(
            span.data,
            span.begins,
            span.ends,
            self.batches,
            span.rows,
            mode,
            CHUNK_BYTES,
            batch,
            record,
            position,
            batch_row,
            *columns.arrays,
        )
        return fault, batch, record, position, self._decoded(span.data, columns, batch_row, filled)

    def _room(self, span: Span, batch: int) -> int:
        """The maximum number of records, by the available bytes and by the headers."""
        if batch == len(span.rows) - 1:
            most = (int(span.ends[batch]) - int(span.begins[batch])) // MIN_RECORD_BYTES
            claimed = max(int(self.batches["record_count"][span.rows[batch]]), 0)
        else:
            most = int(((span.ends[batch:] - span.begins[batch:]) // MIN_RECORD_BYTES).sum())
            claimed = int(np.maximum(self.batches["record_count"][span.rows[batch:]], 0).sum(dtype=np.int64))
        return min(most, claimed, CHUNK_RECORDS)

    def _decode_messages(self, rows: Rows, begins: NDArray[np.int64]) -> Iterator[DecodedRecords]:
        """Messages as they lie in the piece; of wrappers, their own key and value."""
        message = 0
        while message < len(rows):
            room = min(len(rows) - message, CHUNK_RECORDS)
            columns, batch_row = RecordColumns.empty(room), np.empty(room, np.int32)
            fault, message, filled = decode_messages(
                self.data, begins, self.batches, rows, CHUNK_BYTES, message, batch_row, *columns.arrays
            )
            if filled:
                yield self._decoded(self.data, columns, batch_row, filled)
            if fault != Fault.NONE:
                row = rows[message]
                self.refusals.refuse(row, batch_fault(Fault(fault), self._bytes_of(row), self.batches[row]))
                message += 1

    def _decode_inner(self, span: Span) -> Iterator[DecodedRecords]:
        """The messages inside of wrappers, decompressed."""
        first = 0
        while first < len(span.rows):
            rest = span.part(first, len(span.rows))
            base_offsets = np.empty(len(rest.rows), np.int64)
            fault, good, position = check_inner_messages(
                rest.data, rest.begins, rest.ends, self.batches, rest.rows, 0, base_offsets
            )
            yield from self._decode_checked(rest.part(0, good), base_offsets[:good])
            if fault != Fault.NONE:
                row, begin, end = rest.rows[good], rest.begins[good], rest.ends[good]
                error = inner_fault(Fault(fault), rest.data[begin:end], int(position - begin), self.batches[row])
                self.refusals.refuse(row, error)
                good += 1
            first += good

    def _decode_checked(self, span: Span, base_offsets: NDArray[np.int64]) -> Iterator[DecodedRecords]:
        wrapper = 0
        position = span.begins[0] if len(span.rows) else 0
        while wrapper < len(span.rows):
            most = int(span.ends[-1] - position) // MIN_BATCH_BYTES[0]
            room = min(most, CHUNK_RECORDS)
            columns, batch_row = RecordColumns.empty(room), np.empty(room, np.int32)
            wrapper, position, filled = decode_inner_messages(
                span.data,
                span.begins,
                span.ends,
                self.batches,
                span.rows,
                base_offsets,
                CHUNK_BYTES,
                wrapper,
                position,
                batch_row,
                *columns.arrays,
            )
            yield self._decoded(span.data, columns, batch_row, filled)

    def _decoded(
        self, data: NDArray[np.uint8], columns: RecordColumns, batch_row: NDArray[np.int32], filled: int
    ) -> DecodedRecords:
        return DecodedRecords(data, columns.first(filled), batch_row[:filled], self.batches)

    def _bytes_of(self, row: int) -> NDArray[np.uint8]:
        """The whole batch as it lies in the piece."""
        begin = int(self.begins[row])
        return self.data[begin : begin + int(self.batches["size"][row])]

    def _refuse_records(self, span: Span, batch: int, fault: Fault, position: int, is_packed: bool) -> None:
        row = int(span.rows[batch])
        header = self.batches[row]
        error = record_fault(fault, span.data, position, int(span.ends[batch]), header)
        if fault is Fault.RECORD_COUNT:
            self.refusals.refuse(row, error)
        elif is_packed:
            error.reason += f" at byte {position - int(span.begins[batch])} of the decompressed records"
            self.refusals.refuse(row, error)
        else:
            in_file = int(header["position"]) + position - int(self.begins[row])
            self.refusals.refuse(row, error, position=in_file)
