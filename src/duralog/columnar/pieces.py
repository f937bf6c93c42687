"""The streaming reader: the batches of a log file, a few megabytes at a time.

A piece holds whole batches only. Its bytes are read, not mapped: a file that is cut while it is mapped would end the
process. Memory is bounded by `piece_bytes`, or by the largest batch where one is larger; a batch claims its size, so it
is read only if the source is that long.

At the end of a source, a partial batch is normal (`tail_bytes`). An impossible length or format version ends the
reading (`fault`), since the start of the next batch is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.arrow_runs import ArrowDecoder
from duralog.columnar.decoded import DecodedRecords, places_between
from duralog.columnar.refusals import OnCorruptBatch, Refusals, scan_fault
from duralog.columnar.runs import Rows, RunDecoder
from duralog.errors import CorruptRecord, Fault
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.format.layout import ENTRY_PREFIX, MAGIC_POSITION
from duralog.kernels.columns import BATCH_DTYPE, PLAIN_ROW
from duralog.kernels.direct import PADDING
from duralog.kernels.scan import scan_batches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PIECE_BYTES", "ByteSource", "DecodedRecords", "MemorySource", "Piece", "read_pieces"]

PIECE_BYTES = 4 << 20
"""Small enough to stay in the CPU's cache from reading to decoding: eight times as much is half as fast."""

_LARGE_BLOCK_BYTES = 4 * PIECE_BYTES

PADDED_BYTES = 64 << 10
"""Smaller pieces have no padding: it takes longer to read them with it."""

_Bytes = NDArray[np.uint8]
_Fill = Callable[[int, memoryview], None]

_CLASSIFIED_BYTES: int = MAGIC_POSITION + 1
_FIRST_ROWS = 1024


class ByteSource(Protocol):
    """Bytes that can be read at any position. `size` is their number, `name` their name in errors.

    If it has `read_into(position, target)`, as files have, this is called for large pieces: they get padding.
    """

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, position: int, size: int) -> Any:
        """Exactly `size` bytes, as an object that offers them as a buffer. REQUIRES: they lie within `size`."""


class MemorySource:
    """Bytes in memory, of anything that offers a buffer."""

    def __init__(self, data: Any, name: str = "memory") -> None:
        self._view = memoryview(data).cast("B")
        self.name = name
        self.size = len(self._view)

    def read(self, position: int, size: int) -> memoryview:
        return self._view[position : position + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some bytes of a source, and the batches in them."""

    name: str
    position: int
    """Of data[0] in the source."""
    data: NDArray[np.uint8]
    padded: NDArray[np.uint8] | None = None
    """The same bytes and `PADDING` more that mean nothing, since a kernel may read too far. None without padding."""
    batches: NDArray[Any]
    """One row (`BATCH_DTYPE`) each; positions count in the source."""
    fault: CorruptRecord | None = None
    """The fault that stopped the reading after these batches."""
    tail_bytes: int = 0
    """Bytes after the last whole batch, at the end of the source."""

    def decode(
        self,
        rows: Rows | None = None,
        *,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        on_corrupt: OnCorruptBatch | None = None,
    ) -> Iterator[DecodedRecords]:
        """The records of all batches, or of these rows, in chunks.

        A corrupt batch, by its checksum or by its contents, raises `CorruptRecord` after the records before it were
        yielded. With `on_corrupt(error, row)` it is reported there and skipped.
        """
        decoder = self._decoder(RunDecoder, self.data, max_decompressed_bytes, on_corrupt)
        return cast("Iterator[DecodedRecords]", decoder.decode(self._rows(rows)))

    def to_arrow(
        self,
        rows: Rows | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        columns: Sequence[str] | None = None,
        offsets: tuple[int, int] | None = None,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        on_corrupt: OnCorruptBatch | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same records as Arrow record batches, which is faster than `decode` and its chunks' `to_arrow`.

        With `offsets`, only the records from the first up to, not including, the second, and no empty batches.
        """
        data = self.data if self.padded is None else self.padded
        decoder = self._decoder(ArrowDecoder, data, max_decompressed_bytes, on_corrupt, columns)
        for chunk in decoder.decode(self._rows(rows)):
            batch = chunk.to_arrow(topic=topic, partition=partition, columns=columns)
            if offsets is None:
                yield batch
                continue
            places = places_between(chunk.offset, *offsets)
            if not isinstance(places, slice):
                yield batch.take(places)
            elif places.start < places.stop:
                yield batch.slice(places.start, places.stop - places.start)

    def _rows(self, rows: Rows | None) -> Rows:
        if rows is None:
            return np.arange(len(self.batches), dtype=np.intp)
        return np.ascontiguousarray(rows, np.intp)

    def _decoder(
        self,
        kind: Callable[..., RunDecoder],
        data: NDArray[np.uint8],
        max_decompressed_bytes: int,
        on_corrupt: OnCorruptBatch | None,
        *options: Any,
    ) -> RunDecoder:
        begins = self.batches["position"] - self.position
        refusals = Refusals(self.name, self.batches, on_corrupt)
        return kind(data, self.batches, begins, max_decompressed_bytes, refusals, *options)


def read_pieces(
    source: ByteSource,
    *,
    start: int = 0,
    end: int | None = None,
    check_crc: bool = True,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[Piece]:
    """The batches from `start`, where one must begin, to `end` or to the source's end.

    If the bytes do not end with a whole batch, the last piece says so, and may hold no batches at all.
    """
    _keep_freed_memory()
    end = source.size if end is None else min(end, source.size)
    fill: _Fill | None = getattr(source, "read_into", None)
    position = start
    size = piece_bytes
    while position < end:
        size = min(size, end - position)
        data, padded = _read(source, fill, position, size)
        batches, scanned, fault = _scan(data, position, check_crc)
        if fault == Fault.PARTIAL_BATCH and position + size < end:
            if len(batches):
                fault = Fault.NONE
            elif (needed := _size_of_first(data)) <= end - position:
                size = needed
                continue
        is_last = fault != Fault.NONE
        is_corrupt = is_last and fault != Fault.PARTIAL_BATCH
        yield Piece(
            name=source.name,
            position=position,
            data=data,
            padded=padded,
            batches=batches,
            fault=scan_fault(data, scanned, fault).in_file(source.name, position) if is_corrupt else None,
            tail_bytes=end - position - scanned if is_last else 0,
        )
        if is_last:
            return
        position += scanned
        size = piece_bytes


def _read(source: ByteSource, fill: _Fill | None, position: int, size: int) -> tuple[_Bytes, _Bytes | None]:
    """`Piece.data` and `Piece.padded`."""
    if fill is None or size < PADDED_BYTES:
        return np.frombuffer(source.read(position, size), np.uint8), None
    padded = np.empty(size + PADDING, np.uint8)
    data = padded[:size]
    fill(position, data.data)
    return data, padded


@cache
def _keep_freed_memory() -> None:
    """Let malloc hand the same memory to one piece after the other.

    glibc gives freed memory of a piece's size back to the system, and the next piece pays for every page with a fault:
    an eighth of the time from a file to Arrow. Once a larger block was freed, it keeps up to twice that block's size.
    The block here is never touched, so it costs nothing. With another malloc it does nothing.
    """
    np.empty(_LARGE_BLOCK_BYTES, np.uint8)


def _size_of_first(data: NDArray[np.uint8]) -> int:
    """How many bytes to read to see more of the incomplete batch at the start of `data`."""
    if len(data) < _CLASSIFIED_BYTES:
        return _CLASSIFIED_BYTES
    _, length = ENTRY_PREFIX.unpack(data)
    return ENTRY_PREFIX.size + length


def _scan(data: NDArray[np.uint8], position: int, check_crc: bool) -> tuple[NDArray[Any], int, Fault]:
    """The batches of the data, where in it the scan stopped, and why."""
    tables: list[NDArray[Any]] = []
    scanned = 0
    capacity = _FIRST_ROWS
    while True:
        rows = np.empty(capacity, BATCH_DTYPE)
        count, used, fault = scan_batches(data[scanned:], position + scanned, check_crc, rows)
        tables.append(rows[:count])
        scanned += used
        if fault != Fault.NONE or scanned == len(data):
            break
        capacity *= 4
    batches = tables[0] if len(tables) == 1 else np.concatenate([table.view(PLAIN_ROW) for table in tables])
    return batches.view(BATCH_DTYPE), scanned, Fault.NONE if scanned == len(data) else Fault(fault)
