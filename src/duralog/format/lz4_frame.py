"""LZ4 frames as Kafka writes and reads them.

Written: independent blocks of 64 KiB, no checksums but the header's, no content size. A block that does not shrink is
stored as it is. The header's checksum is a byte of the xxHash of the descriptor. Kafka's first LZ4 writer hashed the
frame's magic number too, and v0 messages kept that form for good: it is written for them, and not looked at when
they are read.

Read: one frame, with blocks of any size that the format has, block checksums (verified), a content size and a content
checksum (both skipped). Blocks that depend on each other are refused, and bytes after the frame are ignored: all as in
Kafka. Output grows by whole blocks and stops at the first one that exceeds the ceiling.
"""

from __future__ import annotations

import struct

import cramjam

from duralog.errors import CorruptRecord, Fault
from duralog.format.varint import Bytes

BLOCK_BYTES = 64 * 1024
FAST_LEVEL = 9
"""Kafka's default level, which means the fast compressor; every other level means the thorough one."""

_MAGIC = 0x184D2204
_HEADER = struct.Struct("<IBBB")
_BLOCK_SIZE = struct.Struct("<I")
_FLAGS_WRITTEN = 0x60
_BLOCK_BYTES_CODE_WRITTEN = 0x40

_VERSION = 0x40
_VERSION_MASK = 0xC0
_INDEPENDENT_BLOCKS = 0x20
_BLOCK_CHECKSUM = 0x10
_CONTENT_SIZE = 0x08
_CONTENT_CHECKSUM = 0x04
_RESERVED_FLAGS = 0x03

_STORED = 0x80000000
_END_MARK = _BLOCK_SIZE.pack(0)

MAX_EXPANSION = 255
"""The most bytes that one byte of a compressed block unpacks to."""

_BLOCK_BYTES_BY_CODE = {0x40: 64 * 1024, 0x50: 256 * 1024, 0x60: 1024 * 1024, 0x70: 4 * 1024 * 1024}


def compress(data: Bytes, *, magic: int, level: int | None = None) -> bytes:
    """One frame. REQUIRES: `level` is None or within 1 to 17."""
    if level is None or level == FAST_LEVEL:
        parts = _fast_blocks(memoryview(data))
    else:
        parts = _thorough_blocks(data, level)
    return b"".join((_HEADER_V0 if magic == 0 else HEADER, *parts, _END_MARK))


def decompress(data: Bytes, *, magic: int, max_bytes: int) -> memoryview:
    """The content of the frame that `data` starts with."""
    flags, block_bytes, position = _read_header(data, magic)
    block_checksum_bytes = 4 if flags & _BLOCK_CHECKSUM else 0
    blocks, position, bound = _walk_blocks(data, position, block_bytes, block_checksum_bytes)
    if flags & _CONTENT_CHECKSUM and len(data) - position < 4:
        raise _ended_early()

    view = memoryview(data)
    room = bytearray(min(bound, max_bytes + block_bytes))
    output = memoryview(room)
    written = 0
    for start, size, is_stored in blocks:
        block = view[start : start + size]
        if block_checksum_bytes:
            _verify_block(data, block, start + size)
        if is_stored:
            output[written : written + size] = block
            written += size
        else:
            free = min(block_bytes, len(room) - written)
            try:
                written += cramjam.lz4.decompress_block_into(block, output[written : written + free], output_len=free)
            except cramjam.DecompressionError as error:
                raise CorruptRecord(f"a block is not LZ4: {error}", fault=Fault.DECOMPRESSION) from None
        if written > max_bytes:
            raise CorruptRecord(
                "the records unpack to more than is allowed",
                fault=Fault.TOO_LARGE,
                expected=f"at most {max_bytes} bytes",
                found="more",
            )
    return output[:written]


def xxh32(data: Bytes) -> int:
    """xxHash, 32 bits, seed 0."""
    mask = 0xFFFFFFFF
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    size = len(data)
    position = 0
    if size >= 16:
        lanes = [(prime1 + prime2) & mask, prime2, 0, -prime1 & mask]
        for words in struct.iter_unpack("<4I", memoryview(data)[: size & ~15]):
            lanes = [
                rotate((lane + w * prime2) & mask, 13) * prime1 & mask for lane, w in zip(lanes, words, strict=True)
            ]
        position = size & ~15
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        value = prime5
    value = (value + size) & mask
    while position + 4 <= size:
        (word,) = struct.unpack_from("<I", data, position)
        value = rotate((value + word * prime3) & mask, 17) * prime4 & mask
        position += 4
    for byte in memoryview(data)[position:]:
        value = rotate((value + byte * prime5) & mask, 11) * prime1 & mask
    value = (value ^ (value >> 15)) * prime2 & mask
    value = (value ^ (value >> 13)) * prime3 & mask
    return value ^ (value >> 16)


def _header_checksum(descriptor: Bytes) -> int:
    return (xxh32(descriptor) >> 8) & 0xFF


def _written_header(*, with_magic_hashed: bool) -> bytes:
    header = _HEADER.pack(_MAGIC, _FLAGS_WRITTEN, _BLOCK_BYTES_CODE_WRITTEN, 0)[:-1]
    return header + bytes([_header_checksum(header if with_magic_hashed else header[4:])])


_HEADER_V0 = _written_header(with_magic_hashed=True)
HEADER = _written_header(with_magic_hashed=False)
assert (_HEADER_V0[-1], HEADER[-1]) == (0x1A, 0x82)


def _read_header(data: Bytes, magic: int) -> tuple[int, int, int]:
    """Flags, block size, position of the first block."""
    if len(data) < _HEADER.size:
        raise _ended_early()
    if data[: _HEADER.size] == HEADER:
        return _FLAGS_WRITTEN, BLOCK_BYTES, _HEADER.size
    frame_magic, flags, code, _ = _HEADER.unpack_from(data)
    if frame_magic != _MAGIC:
        raise _refused("no LZ4 frame", expected=f"{_MAGIC:#010x}", found=f"{frame_magic:#010x}")
    if flags & _VERSION_MASK != _VERSION or flags & _RESERVED_FLAGS:
        raise _refused("unknown kind of LZ4 frame", expected="version 1, no reserved flags", found=f"{flags:#04x}")
    if not flags & _INDEPENDENT_BLOCKS:
        raise _refused("LZ4 blocks that depend on each other", expected="independent blocks", found=f"{flags:#04x}")
    block_bytes = _BLOCK_BYTES_BY_CODE.get(code)
    if block_bytes is None:
        raise _refused("unknown LZ4 block size", expected="0x40, 0x50, 0x60 or 0x70", found=f"{code:#04x}")
    descriptor_end = 14 if flags & _CONTENT_SIZE else 6
    if len(data) <= descriptor_end:
        raise _ended_early()
    if magic > 0:
        expected = _header_checksum(data[4:descriptor_end])
        if data[descriptor_end] != expected:
            raise _refused("wrong checksum of the LZ4 header", expected=expected, found=data[descriptor_end])
    return flags, block_bytes, descriptor_end + 1


def _walk_blocks(
    data: Bytes, position: int, block_bytes: int, checksum_bytes: int
) -> tuple[list[tuple[int, int, bool]], int, int]:
    """Each block's start, size and whether it is stored; the position after the end mark; how much all may hold."""
    blocks: list[tuple[int, int, bool]] = []
    bound = 0
    end = len(data)
    while True:
        if end - position < _BLOCK_SIZE.size:
            raise _ended_early()
        (field,) = _BLOCK_SIZE.unpack_from(data, position)
        position += _BLOCK_SIZE.size
        size = field & ~_STORED
        if size == 0:
            return blocks, position, bound
        if size > block_bytes:
            raise _refused("an LZ4 block is too large", expected=f"at most {block_bytes} bytes", found=size)
        if size + checksum_bytes > end - position:
            raise _ended_early()
        is_stored = bool(field & _STORED)
        blocks.append((position, size, is_stored))
        bound += size if is_stored else min(block_bytes, size * MAX_EXPANSION)
        position += size + checksum_bytes


def _verify_block(data: Bytes, block: memoryview, checksum_position: int) -> None:
    (stored,) = struct.unpack_from("<I", data, checksum_position)
    computed = xxh32(block)
    if stored != computed:
        raise _refused("wrong checksum of an LZ4 block", expected=f"{computed:#010x}", found=f"{stored:#010x}")


def _fast_blocks(view: memoryview) -> list[bytes]:
    parts: list[bytes] = []
    for start in range(0, len(view), BLOCK_BYTES):
        block = view[start : start + BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_BLOCK_SIZE.pack(len(packed)), packed)
        else:
            parts += (_BLOCK_SIZE.pack(len(block) | _STORED), bytes(block))
    return parts


def _thorough_blocks(data: Bytes, level: int) -> list[bytes]:
    """The library has the thorough compressor in its own frames only, so their blocks move into ours."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = bytes(compressor.finish())
    flags, block_bytes, position = _read_header(frame, magic=1)
    blocks, _, _ = _walk_blocks(frame, position, block_bytes, 4 if flags & _BLOCK_CHECKSUM else 0)
    parts: list[bytes] = []
    for start, size, is_stored in blocks:
        parts += (_BLOCK_SIZE.pack(size | _STORED if is_stored else size), frame[start : start + size])
    return parts


def _refused(reason: str, *, expected: object, found: object) -> CorruptRecord:
    return CorruptRecord(reason, fault=Fault.DECOMPRESSION, expected=expected, found=found)


def _ended_early() -> CorruptRecord:
    return CorruptRecord("the LZ4 frame ends early", fault=Fault.DECOMPRESSION)
