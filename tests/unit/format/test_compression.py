from __future__ import annotations

import struct
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import pytest

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import lz4_frame
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress, decompress

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"record %d of a batch that repeats itself; " % number for number in range(5000))
XERIAL_HEADER = bytes.fromhex("82534e41505059000000000100000001")


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller, the same in every run."""
    state = 1
    words = []
    for _ in range(size // 4 + 1):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        words.append(struct.pack("<I", state ^ (state >> 15)))
    return b"".join(words)[:size]


def refusal_of(codec: Codec, data: bytes, **options: int) -> CorruptRecord:
    with pytest.raises(CorruptRecord) as refusal:
        decompress(codec, data, **options)
    return refusal.value


# What Kafka 4.3.1's own classes write for b"abcde".
@pytest.mark.parametrize(
    ("codec", "magic", "stream"),
    [
        (Codec.GZIP, 2, "1f8b08000000000000ff4b4c4a4e49050065d8878505000000"),
        (Codec.SNAPPY, 2, "82534e415050590000000001000000010000000705106162636465"),
        (Codec.LZ4, 2, "04224d1860408205000080616263646500000000"),
        (Codec.LZ4, 1, "04224d1860408205000080616263646500000000"),
        (Codec.LZ4, 0, "04224d1860401a05000080616263646500000000"),
        (Codec.ZSTD, 2, "28b52ffd00582800006162636465010000"),
    ],
)
def test_streams_are_kafkas(codec: Codec, magic: int, stream: str) -> None:
    assert compress(codec, b"abcde", magic=magic).hex() == stream
    assert bytes(decompress(codec, bytes.fromhex(stream), magic=magic)) == b"abcde"


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "data",
    [b"x", TEXT, noise(1000), noise(200_000), bytes(300_000), TEXT[:32768], TEXT[:32769], TEXT[:65536], TEXT[:65537]],
    ids=lambda data: f"{len(data)}",
)
def test_round_trips(codec: Codec, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        packed = compress(codec, buffer)
        assert bytes(decompress(codec, memoryview(packed))) == data


@pytest.mark.parametrize("codec", PACKING)
def test_packing_makes_text_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 3


def test_names_and_numbers() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(Codec.named(codec.label) is codec for codec in Codec)
    with pytest.raises(InvalidRecord, match=r"'brotli'.*gzip"):
        Codec.named("brotli")


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, -1),
        (Codec.GZIP, 1),
        (Codec.GZIP, 9),
        (Codec.LZ4, 1),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, -131072),
        (Codec.ZSTD, 0),
        (Codec.ZSTD, 19),
    ],
)
def test_levels(codec: Codec, level: int) -> None:
    for data in (TEXT, bytearray(TEXT), noise(100_000)):
        assert bytes(decompress(codec, compress(codec, data, level=level))) == data


def test_higher_levels_pack_tighter() -> None:
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -50, 9)):
        assert len(compress(codec, TEXT, level=high)) < len(compress(codec, TEXT, level=low))
    assert compress(Codec.LZ4, TEXT, level=9) == compress(Codec.LZ4, TEXT)


@pytest.mark.parametrize("level", [9, 12])
def test_lz4_framing_is_the_same_at_all_levels(level: int) -> None:
    frame = compress(Codec.LZ4, TEXT, level=level)
    assert frame[:7].hex() == "04224d18604082"
    assert frame.endswith(bytes(4))
    sizes = []
    position = 7
    while (field := int.from_bytes(frame[position : position + 4], "little")) != 0:
        block = frame[position + 4 : position + 4 + field]
        sizes.append(cramjam.lz4.decompress_block_into(block, bytearray(65536), output_len=65536))
        position += 4 + field
    assert position + 4 == len(frame)
    assert sizes == [65536] * (len(TEXT) // 65536) + [len(TEXT) % 65536]


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, 0), (Codec.GZIP, 10), (Codec.LZ4, 0), (Codec.LZ4, 18), (Codec.ZSTD, 23)]
)
def test_levels_that_kafka_does_not_have(codec: Codec, level: int) -> None:
    with pytest.raises(InvalidRecord, match=f"{codec.label} has the levels"):
        compress(codec, b"x", level=level)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_codecs_without_levels(codec: Codec) -> None:
    with pytest.raises(InvalidRecord, match="no levels"):
        compress(codec, b"x", level=1)


def test_old_formats_have_no_zstd() -> None:
    with pytest.raises(InvalidRecord, match="v1 has no zstd"):
        compress(Codec.ZSTD, b"x", magic=1)


# Bytes after the stream: what running Kafka 4.3.1 reads, and where it fails.
@pytest.mark.parametrize(
    ("codec", "tail"),
    [
        (Codec.GZIP, b"abc"),
        (Codec.GZIP, b"garbage that is no gzip member, longer than a header"),
        (Codec.GZIP, bytes(40)),
        (Codec.SNAPPY, b"abc"),
        (Codec.SNAPPY, XERIAL_HEADER),
        (Codec.LZ4, b"abc"),
        (Codec.LZ4, b"garbage that is no frame"),
        (Codec.LZ4, compress(Codec.LZ4, b"a second frame")),
        (Codec.ZSTD, bytes.fromhex("502a4d1804000000") + b"skip"),
    ],
)
def test_tails_that_are_ignored(codec: Codec, tail: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, TEXT) + tail)) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_streams_one_after_the_other(codec: Codec) -> None:
    stream = compress(codec, TEXT) + compress(codec, b"") + compress(codec, b"more")
    assert bytes(decompress(codec, stream)) == TEXT + b"more"


@pytest.mark.parametrize(
    ("codec", "tail"),
    [
        (Codec.GZIP, compress(Codec.GZIP, b"a member that is cut off")[:-9]),
        (Codec.SNAPPY, b"garbage"),
        (Codec.SNAPPY, bytes(4)),
        (Codec.SNAPPY, XERIAL_HEADER[:12]),
        (Codec.ZSTD, b"abc"),
        (Codec.ZSTD, b"garbage"),
        (Codec.ZSTD, bytes(40)),
    ],
)
def test_tails_that_are_refused(codec: Codec, tail: bytes) -> None:
    assert refusal_of(codec, compress(codec, TEXT) + tail).fault is Fault.DECOMPRESSION


@pytest.mark.parametrize("codec", PACKING)
def test_every_cut_is_refused_or_gives_a_beginning(codec: Codec) -> None:
    data = TEXT[:70_000] if codec in (Codec.SNAPPY, Codec.LZ4) else TEXT[:700]
    packed = compress(codec, data)
    cuts = range(len(packed)) if len(packed) < 2000 else range(0, len(packed), len(packed) // 500)
    for cut in cuts:
        if codec is Codec.SNAPPY:  # its framing has no end mark
            with suppress(CorruptRecord):
                assert data.startswith(bytes(decompress(codec, packed[:cut])))
        else:
            assert refusal_of(codec, packed[:cut]).fault is Fault.DECOMPRESSION


@pytest.mark.parametrize("codec", PACKING)
def test_the_ceiling_is_exact(codec: Codec) -> None:
    for data in (TEXT, b"ab", bytes(1_000_000)):
        packed = compress(codec, data)
        assert bytes(decompress(codec, packed, max_bytes=len(data))) == data
        refusal = refusal_of(codec, packed, max_bytes=len(data) - 1)
        assert refusal.fault is Fault.TOO_LARGE
        assert str(len(data) - 1) in str(refusal)


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_takes_no_more_memory_than_the_ceiling(codec: Codec) -> None:
    bomb = compress(codec, bytes(60_000_000))
    ceiling = 1_000_000
    tracemalloc.start()
    try:
        refusal = refusal_of(codec, bomb, max_bytes=ceiling)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refusal.fault is Fault.TOO_LARGE
    assert peak < 2 * ceiling + 8 * len(bomb)


def test_a_small_stream_takes_little_memory_under_a_large_ceiling() -> None:
    for codec in PACKING:
        packed = compress(codec, TEXT[:20_000])
        tracemalloc.start()
        try:
            decompress(codec, packed, max_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 400_000, codec


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 50, bytes(100), b"not packed at all"])
def test_garbage_is_refused(codec: Codec, data: bytes) -> None:
    if codec is Codec.SNAPPY and data == b"\x00":
        assert bytes(decompress(codec, data)) == b""  # a raw block of nothing
        return
    assert refusal_of(codec, data).fault is Fault.DECOMPRESSION


def test_gzip_refuses_a_wrong_checksum() -> None:
    packed = bytearray(compress(Codec.GZIP, TEXT))
    packed[-5] ^= 1
    assert refusal_of(Codec.GZIP, bytes(packed)).fault is Fault.DECOMPRESSION


def test_gzip_members_with_a_name_and_from_other_writers() -> None:
    member = zlib.compressobj(6, zlib.DEFLATED, 31)
    plain = member.compress(TEXT) + member.flush()
    named = plain[:3] + b"\x08" + plain[4:10] + b"name\x00" + plain[10:]
    assert bytes(decompress(Codec.GZIP, plain)) == TEXT
    assert bytes(decompress(Codec.GZIP, named)) == TEXT


def test_many_small_gzip_members_take_linear_time() -> None:
    assert bytes(decompress(Codec.GZIP, compress(Codec.GZIP, b"ab") * 20_000)) == b"ab" * 20_000


def test_snappy_without_framing() -> None:
    for data in (b"a", TEXT[:60_000], noise(40_000)):
        assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


def test_snappy_framing_of_any_version() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == XERIAL_HEADER
    assert bytes(decompress(Codec.SNAPPY, packed[:8] + struct.pack(">ii", 0, 9) + packed[16:])) == TEXT


def test_snappy_blocks_are_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, noise(80_000))
    sizes = []
    position = 16
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert sizes == [32768, 32768, 80_000 - 65536]


@pytest.mark.parametrize("length", [-5, 100, 2**31 - 1])
def test_snappy_block_lengths_that_cannot_be(length: int) -> None:
    refusal = refusal_of(Codec.SNAPPY, compress(Codec.SNAPPY, b"abc") + struct.pack(">i", length))
    assert refusal.fault is Fault.DECOMPRESSION
    assert str(length) in refusal.reason


def test_snappy_does_not_believe_a_claimed_size() -> None:
    claim = bytes.fromhex("ffffff7f") + b"\x10abcde"  # 256 MiB from ten bytes
    refusal = refusal_of(Codec.SNAPPY, claim)
    assert refusal.fault is Fault.DECOMPRESSION
    assert "cannot hold" in refusal.reason


def lz4_stored(
    data: bytes,
    *,
    flags: int = 0x60,
    code: int = 0x40,
    content_size: int | None = None,
    block_checksum: int | None = None,
    content_checksum: int | None = None,
    header_checksum: int | None = None,
) -> bytes:
    """A frame with one stored block. Checksums are xored with what is given."""
    descriptor = bytes([flags, code])
    if content_size is not None:
        descriptor += struct.pack("<Q", content_size)
    if header_checksum is None:
        header_checksum = (lz4_frame.xxh32(descriptor) >> 8) & 0xFF
    frame = bytes.fromhex("04224d18") + descriptor + bytes([header_checksum])
    frame += struct.pack("<I", len(data) | 0x80000000) + data
    if block_checksum is not None:
        frame += struct.pack("<I", lz4_frame.xxh32(data) ^ block_checksum)
    frame += bytes(4)
    if content_checksum is not None:
        frame += struct.pack("<I", lz4_frame.xxh32(data) ^ content_checksum)
    return frame


@pytest.mark.parametrize(
    "frame",
    [
        lz4_stored(b"some bytes", code=0x50),
        lz4_stored(b"some bytes", code=0x60),
        lz4_stored(b"some bytes", code=0x70),
        lz4_stored(b"some bytes", flags=0x68, content_size=10),
        lz4_stored(b"some bytes", flags=0x68, content_size=99),
        lz4_stored(b"some bytes", flags=0x70, block_checksum=0),
        lz4_stored(b"some bytes", flags=0x64, content_checksum=0),
        lz4_stored(b"some bytes", flags=0x64, content_checksum=1),
        lz4_stored(b"some bytes", flags=0x7C, content_size=10, block_checksum=0, content_checksum=0),
    ],
)
def test_lz4_frames_that_kafka_reads(frame: bytes) -> None:
    assert bytes(decompress(Codec.LZ4, frame)) == b"some bytes"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (lz4_stored(b"some bytes", flags=0x40), "depend on each other"),
        (lz4_stored(b"some bytes", flags=0x20), "unknown kind"),
        (lz4_stored(b"some bytes", flags=0x61), "unknown kind"),
        (lz4_stored(b"some bytes", flags=0x62), "unknown kind"),
        (lz4_stored(b"some bytes", code=0x30), "block size"),
        (lz4_stored(b"some bytes", code=0x41), "block size"),
        (lz4_stored(b"some bytes", code=0xC0), "block size"),
        (lz4_stored(b"some bytes", flags=0x70, block_checksum=1), "checksum of an LZ4 block"),
        (lz4_stored(b"some bytes", header_checksum=0x1A), "checksum of the LZ4 header"),
        (lz4_stored(b"some bytes", flags=0x64), "ends early"),
        (lz4_stored(bytes(65537)), "too large"),
        (b"\x00" + lz4_stored(b"some bytes"), "no LZ4 frame"),
    ],
)
def test_lz4_frames_that_kafka_refuses(frame: bytes, reason: str) -> None:
    refusal = refusal_of(Codec.LZ4, frame)
    assert refusal.fault is Fault.DECOMPRESSION
    assert reason in refusal.reason


def test_the_old_lz4_header_checksum_is_skipped_in_v0_only() -> None:
    for wrong in (0x00, 0x1A, 0x82):
        assert bytes(decompress(Codec.LZ4, lz4_stored(b"x", header_checksum=wrong), magic=0)) == b"x"
    assert refusal_of(Codec.LZ4, compress(Codec.LZ4, b"x", magic=0), magic=1).fault is Fault.DECOMPRESSION


def test_lz4_frames_of_another_library() -> None:
    compressor = cramjam.lz4.Compressor(level=4, content_checksum=True, block_linked=False)
    compressor.compress(TEXT)
    assert bytes(decompress(Codec.LZ4, bytes(compressor.finish()))) == TEXT


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxhash(data: bytes, value: int) -> None:
    assert lz4_frame.xxh32(data) == value


def test_zstd_frames_with_sizes_checksums_and_tiny_blocks() -> None:
    assert bytes(decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT)))) == TEXT
    compressor = cramjam.zstd.Compressor(3)
    parts = []
    for start in range(0, 60_000, 100):
        compressor.compress(TEXT[start : start + 100])
        parts.append(bytes(compressor.flush()))
    parts.append(bytes(compressor.finish()))
    assert bytes(decompress(Codec.ZSTD, b"".join(parts))) == TEXT[:60_000]


def test_zstd_output_grows_with_what_is_needed() -> None:
    data = bytes(40_000_000)
    assert bytes(decompress(Codec.ZSTD, compress(Codec.ZSTD, data))) == data
