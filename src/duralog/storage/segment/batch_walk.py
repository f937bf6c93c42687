"""Walks over the batch headers of a log file, from a position where a batch starts.

For the short way from an index entry to the wanted batch: a few headers, a few microseconds. Whole files are read by
`duralog.columnar.pieces`.

Bytes that cannot be a batch raise `CorruptRecord` with file and position. An incomplete batch at the end is an ordinary
end. Checksums are not verified here, but when the records are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from duralog.errors import CorruptRecord
from duralog.format.framing import whole_batch_bytes
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX, MAGIC_POSITION, MESSAGE_V1, MIN_BATCH_BYTES, NO_TIMESTAMP

_CHUNK_BYTES = 4 << 10
"""Read at a time: about the distance of two index entries."""
_HEADER_BYTES = 64
"""Read for a single header, if batches are so large that a chunk would not hold the next header."""

_CLASSIFIED_BYTES = MAGIC_POSITION + 1
_MIN_BYTES = (*MIN_BATCH_BYTES, *[1 << 62] * (256 - len(MIN_BATCH_BYTES)))
"""By magic. For an unknown magic it is larger than any batch."""

_PREFIX = struct.Struct(">qi4xB")
_DELTA = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
assert _PREFIX.size == _CLASSIFIED_BYTES


class Readable(Protocol):
    """Bytes that can be read at any position."""

    @property
    def name(self) -> str: ...

    def read(self, position: int, size: int) -> bytes: ...


class BatchHeader(NamedTuple):
    """The header fields of a batch that a lookup needs."""

    position: int
    size: int
    first_offset: int
    """For a legacy message its last offset: the first one is only known after decompression."""
    last_offset: int
    max_timestamp_ms: int


def walk(file: Readable, position: int, end: int) -> Iterator[BatchHeader]:
    """The whole batches from `position`, where one starts, to `end`."""
    chunk, chunk_position = b"", position
    while end - position >= _CLASSIFIED_BYTES:
        at = position - chunk_position
        if len(chunk) - at < BATCH_V2.size and chunk_position + len(chunk) < end:
            chunk, chunk_position, at = file.read(position, min(_CHUNK_BYTES, end - position)), position, 0
        first_offset, length, magic = _PREFIX.unpack_from(chunk, at)
        size = length + ENTRY_PREFIX.size
        if size < _MIN_BYTES[magic]:
            _refuse(file, chunk, at, position, end)
        if size > end - position:
            return
        if magic == 2:
            last_offset = first_offset + _DELTA.unpack_from(chunk, at + BATCH_V2.at.last_offset_delta)[0]
            timestamp = _TIMESTAMP.unpack_from(chunk, at + BATCH_V2.at.max_timestamp)[0]
        else:
            last_offset = first_offset
            timestamp = _TIMESTAMP.unpack_from(chunk, at + MESSAGE_V1.at.timestamp)[0] if magic else NO_TIMESTAMP
        yield BatchHeader(position, size, first_offset, last_offset, timestamp)
        position += size


def first_reaching(file: Readable, position: int, end: int, offset: int) -> tuple[int, int, int] | None:
    """Position, size and last offset of the first batch that reaches the offset; None if there is none.

    As `walk`, without a generator: every read runs this.
    """
    chunk, chunk_position, read_bytes = b"", position, _HEADER_BYTES
    while end - position >= _CLASSIFIED_BYTES:
        at = position - chunk_position
        if len(chunk) - at < BATCH_V2.size and chunk_position + len(chunk) < end:
            chunk, chunk_position, at = file.read(position, min(read_bytes, end - position)), position, 0
        last_offset, length, magic = _PREFIX.unpack_from(chunk, at)
        size = length + 12
        if size < _MIN_BYTES[magic]:
            _refuse(file, chunk, at, position, end)
        if size > end - position:
            return None
        if magic == 2:
            last_offset += _DELTA.unpack_from(chunk, at + 23)[0]
        if last_offset >= offset:
            return position, size, last_offset
        read_bytes = _CHUNK_BYTES if size < _CHUNK_BYTES else _HEADER_BYTES
        position += size
    return None


def _refuse(file: Readable, chunk: bytes, at: int, position: int, end: int) -> None:
    """Raise the error that the reference decoder has for this batch. Returns for an incomplete one."""
    try:
        whole_batch_bytes(memoryview(chunk), at, at + end - position)
    except CorruptRecord as error:
        raise error.in_file(file.name, position - at) from None
