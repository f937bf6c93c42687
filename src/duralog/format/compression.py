"""The codecs of record batches, both directions: none, gzip, snappy, lz4, zstd.

Streams are framed as Kafka frames them and read as leniently as Kafka reads them:
- gzip: one member with a fixed header. Read: any members one after the other; bytes after them that start no member are
  ignored.
- snappy: blocks of 32 KiB in the framing of snappy-java ("xerial"). Read: that, with its header repeated anywhere, or a
  single raw block without framing.
- lz4: see `lz4_frame`.
- zstd: one frame in streaming form (no content size), closed by an empty block. Read: any frames one after the other.

Compressed bytes come from a disk or a network. Whatever is wrong with them is a `CorruptRecord` with the fault
DECOMPRESSION, or TOO_LARGE when they unpack to more than `max_bytes`; it has no position, which the caller knows. No
more than `max_bytes` and one block is ever allocated, and sizes that a stream claims are checked against what its
bytes could hold before they are believed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import lz4_frame
from duralog.format.varint import Bytes

DEFAULT_MAX_DECOMPRESSED_BYTES = 1 << 30


class Codec(IntEnum):
    """The numbers are those in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def named(cls, label: str) -> Codec:
        for codec in cls:
            if codec.label == label:
                return codec
        raise InvalidRecord(f"unknown codec {label!r}; there are {', '.join(codec.label for codec in cls)}")


_LEVELS = {
    Codec.GZIP: range(1, 10),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}
_GZIP_DEFAULT_LEVEL = -1


def compress(codec: Codec, data: Bytes, *, magic: int = 2, level: int | None = None) -> bytes:
    """The stream of `data` for a batch of format version `magic`. Levels are Kafka's `compression.<codec>.level`."""
    _check_level(codec, level)
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return _gzip_compress(data, level)
    if codec is Codec.SNAPPY:
        return _snappy_compress(data)
    if codec is Codec.LZ4:
        return lz4_frame.compress(data, magic=magic, level=level)
    if magic < 2:
        raise InvalidRecord(f"format v{magic} has no zstd")
    return _zstd_compress(data, level)


def decompress(codec: Codec, data: Bytes, *, magic: int = 2, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Bytes:
    """What `data` unpacks to; `data` itself without a codec."""
    if codec is Codec.NONE:
        return data
    if codec is Codec.LZ4:
        return lz4_frame.decompress(data, magic=magic, max_bytes=max_bytes)
    return _DECOMPRESSORS[codec](data, max_bytes)


def _check_level(codec: Codec, level: int | None) -> None:
    if level is None or (codec is Codec.GZIP and level == _GZIP_DEFAULT_LEVEL):
        return
    levels = _LEVELS.get(codec)
    if levels is None:
        raise InvalidRecord(f"{codec.label} has no levels")
    if level not in levels:
        raise InvalidRecord(f"{codec.label} has the levels {levels[0]} to {levels[-1]}, not {level}")


def _refused(codec: Codec, problem: object) -> CorruptRecord:
    return CorruptRecord(f"the records do not unpack as {codec.label}: {problem}", fault=Fault.DECOMPRESSION)


def _too_large(max_bytes: int, found: object = "more") -> CorruptRecord:
    return CorruptRecord(
        "the records unpack to more than is allowed",
        fault=Fault.TOO_LARGE,
        expected=f"at most {max_bytes} bytes",
        found=found,
    )


# gzip

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
"""No name, no time, no extra flags, unknown operating system: what Java writes from version 16 on."""
_GZIP_MEMBER_START = _GZIP_HEADER[:3]
_GZIP_TRAILER = struct.Struct("<II")
_RAW_DEFLATE = -15
_GZIP_FORMAT = 31
_LATER_MEMBER_WINDOW = 8 * 1024
"""zlib copies what is left of its input when a member ends. Small pieces keep many small members linear."""


def _gzip_compress(data: Bytes, level: int | None) -> bytes:
    deflate = zlib.compressobj(_GZIP_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, _RAW_DEFLATE)
    trailer = _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEADER, deflate.compress(data), deflate.flush(), trailer))


def _gzip_decompress(data: Bytes, max_bytes: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    window = len(view)
    while not parts or view[position : position + len(_GZIP_MEMBER_START)] == _GZIP_MEMBER_START:
        member = zlib.decompressobj(_GZIP_FORMAT)
        while not member.eof:
            piece = view[position : position + window]
            if not piece:
                raise _refused(Codec.GZIP, "the stream ends early")
            try:
                part = member.decompress(piece, room + 1)
            except zlib.error as error:
                raise _refused(Codec.GZIP, error) from None
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise _too_large(max_bytes)
            position += len(piece) - len(member.unused_data)
        window = _LATER_MEMBER_WINDOW
    return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")
(_XERIAL_MAGIC_AS_LENGTH,) = _XERIAL_LENGTH.unpack_from(_XERIAL_MAGIC)
_SNAPPY_MAX_EXPANSION = 22
"""Three bytes unpack to 64 at most."""


def _snappy_compress(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Bytes, max_bytes: int) -> memoryview:
    view = memoryview(data)
    blocks = _xerial_blocks(view) if _has_xerial_header(view, 0) else [view]
    sizes = [_snappy_block_size(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise _too_large(max_bytes, total)
    output = memoryview(bytearray(total))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        except cramjam.DecompressionError as error:
            raise _refused(Codec.SNAPPY, error) from None
        position += size
    return output


def _has_xerial_header(view: memoryview, position: int) -> bool:
    """A stream too short for the whole header is a raw block, even if it starts like one. Any version will do."""
    magic = view[position : position + len(_XERIAL_MAGIC)]
    return len(view) - position >= _XERIAL_HEADER.size and magic == _XERIAL_MAGIC


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks. Fewer than four bytes where a length should be are an ordinary end, as in snappy-java."""
    blocks: list[memoryview] = []
    position = _XERIAL_HEADER.size
    while len(view) - position >= _XERIAL_LENGTH.size:
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        if length == _XERIAL_MAGIC_AS_LENGTH:
            if not _has_xerial_header(view, position):
                raise _refused(Codec.SNAPPY, "a repeated header of the framing is damaged")
            position += _XERIAL_HEADER.size
            continue
        position += _XERIAL_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise _refused(Codec.SNAPPY, f"a block of {length} bytes, where {len(view) - position} are left")
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _snappy_block_size(block: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _refused(Codec.SNAPPY, error) from None
    if size > len(block) * _SNAPPY_MAX_EXPANSION:
        raise _refused(Codec.SNAPPY, f"{len(block)} bytes cannot hold the {size} that they claim")
    return size


# zstd

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_SKIPPABLE_MASK = 0xFFFFFFF0
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE = 0, 1
_ZSTD_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_ZSTD_FIRST_ROOM = 1 << 20
_ZSTD_LIKELY_EXPANSION = 16
_OUTPUT_IS_FULL = "failed to write whole buffer"


def _zstd_compress(data: Bytes, level: int | None) -> bytes:
    compressor = cramjam.zstd.Compressor(_ZSTD_DEFAULT_LEVEL if level is None else level)
    compressor.compress(bytes(data))
    # The frame in two steps, as Kafka's writer does: all blocks, then an empty last one.
    blocks = bytes(compressor.flush())
    return blocks + bytes(compressor.finish())


def _zstd_decompress(data: Bytes, max_bytes: int) -> memoryview:
    least, most = _zstd_bounds(data)
    if least > max_bytes:
        raise _too_large(max_bytes, f"at least {least}")
    bound = min(most, max_bytes)
    room = min(bound, max(_ZSTD_FIRST_ROOM, len(data) * _ZSTD_LIKELY_EXPANSION))
    while True:
        output = bytearray(room)
        try:
            written = cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_IS_FULL:
                raise _refused(Codec.ZSTD, error) from None
            if room == bound:
                raise _too_large(max_bytes) from None
            room = min(bound, room * _ZSTD_LIKELY_EXPANSION)
        else:
            return memoryview(output)[:written]


def _zstd_bounds(data: Bytes) -> tuple[int, int]:
    """The least and the most that the frames can unpack to, from the headers of their blocks."""
    end = len(data)
    position = 0
    known = packed = 0
    while position < end:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC or end - position < 5:
            raise _refused(Codec.ZSTD, "no frame where one should start")
        descriptor = data[position + 4]
        is_single_segment = bool(descriptor & 0x20)
        content_size_bytes = _ZSTD_CONTENT_SIZE_BYTES[descriptor >> 6] or int(is_single_segment)
        position += 5 + (not is_single_segment) + _ZSTD_DICTIONARY_ID_BYTES[descriptor & 0x03] + content_size_bytes
        is_last = False
        while not is_last:
            if end - position < 3:
                raise _refused(Codec.ZSTD, "the stream ends early")
            header = int.from_bytes(data[position : position + 3], "little")
            is_last = bool(header & 1)
            kind = (header >> 1) & 3
            size = header >> 3
            if kind in (_ZSTD_RAW, _ZSTD_RLE):
                known += size
            else:
                packed += _ZSTD_BLOCK_BYTES
            position += 3 + (1 if kind == _ZSTD_RLE else size)
        position += 4 if descriptor & 0x04 else 0
    return known, known + packed


_DECOMPRESSORS: dict[Codec, Callable[[Bytes, int], Bytes]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.ZSTD: _zstd_decompress,
}
