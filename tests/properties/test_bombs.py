"""Small batches that unpack to hundreds of megabytes: refused at the ceiling, in bounded memory, by all readers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable
from functools import partial

import cramjam
import pytest

from duralog.format import message_set, record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2, MESSAGE_V0, MESSAGE_V1
from duralog.format.record import Record

UNPACKED_BYTES = 256 << 20
CEILING_BYTES = 16 << 20
MEMORY_BYTES = 100 << 20
"""What a reader may take beyond what it has after its imports, for a ceiling of 16 MiB."""

READERS = {
    "reference": """
        from duralog.format import batches
        def read(log):
            for batch in batches.scan(log):
                batches.decode_records(log, batch, max_decompressed_bytes=CEILING_BYTES)
        """,
    "kernels": """
        from duralog.columnar.pieces import MemorySource, read_pieces
        def read(log):
            for piece in read_pieces(MemorySource(log)):
                for decoded in piece.decode(max_decompressed_bytes=CEILING_BYTES):
                    pass
        """,
    "append": """
        from duralog.config import TopicConfig
        from duralog.storage.append.batch_admission import Stamp
        from duralog.storage.append.validation import validate
        config = TopicConfig().with_overrides({"max.message.bytes": 100 << 20})
        def read(log):
            validate(log, config=config, stamp=Stamp(0, 0, 0), max_decompressed_bytes=CEILING_BYTES)
        """,
}

PROGRAM = """
import sys
from duralog.errors import CorruptRecord, Fault
{reader}
import duralog.format.record_batch as record_batch
from duralog.format.record import Record
def peak():
    # Not ru_maxrss: that starts with the peak of whoever started this process.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
read(record_batch.encode([Record(value=b"sound")]))
before = peak()
bombs = sys.stdin.buffer
while name := bombs.readline().decode().strip():
    log = bombs.read(int(bombs.readline()))
    try:
        read(log)
    except CorruptRecord as error:
        assert error.fault is Fault.TOO_LARGE, (name, error)
        assert error.position == 0, (name, error)
        assert str(CEILING_BYTES) in str(error), (name, error)
    else:
        sys.exit(f"the bomb was read: {{name}}")
    print(name, peak() - before)
"""


def packed_zeros(codec: Codec) -> bytes:
    """A stream of zeros, made without having all of them in memory."""
    zeros = bytes(1 << 20)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        packed = b"".join(packer.compress(zeros) for _ in range(UNPACKED_BYTES // len(zeros))) + packer.flush()
    elif codec is Codec.ZSTD:
        frame = bytes(cramjam.zstd.compress(zeros * 64, 3))
        packed = frame * (UNPACKED_BYTES // (64 << 20))
    elif codec is Codec.LZ4:
        one = compress(codec, bytes(1 << 16))
        block, header, end_mark = one[7:-4], one[:7], one[-4:]
        packed = header + block * (UNPACKED_BYTES // (1 << 16)) + end_mark
    else:
        one = compress(codec, bytes(1 << 15))
        header, block = one[:16], one[16:]
        packed = header + block * (UNPACKED_BYTES // (1 << 15))
    return packed


def raw_snappy(size: int) -> bytes:
    """One block without the framing: a zero byte, and copies of 64 bytes of it."""
    length = bytearray()
    rest = size
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes(length) + b"\x00\x00" + b"\xfe\x01\x00" * ((size - 1) // 64)


def bomb(codec: Codec, packed: bytes | None = None) -> bytes:
    packed = packed_zeros(codec) if packed is None else packed
    whole = bytearray(record_batch.encode([Record(value=b"")], codec=codec)[: BATCH_V2.size] + packed)
    at = BATCH_V2.at
    whole[at.length : at.length + 4] = (len(whole) - at.leader_epoch).to_bytes(4, "big")
    whole[at.crc : at.crc + 4] = crc32c(bytes(whole[at.attributes :])).to_bytes(4, "big")
    return bytes(whole)


def wrapper(codec: Codec, magic: int) -> bytes:
    """The same as a message of an old format."""
    layout = (MESSAGE_V0, MESSAGE_V1)[magic]
    packed = packed_zeros(codec)
    whole = bytearray(message_set.encode([Record(value=b"")], magic=magic, codec=codec)[: layout.size])
    whole += len(packed).to_bytes(4, "big") + packed
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[12:16] = zlib.crc32(bytes(whole[16:])).to_bytes(4, "big")
    return bytes(whole)


CODECS = [codec for codec in Codec if codec is not Codec.NONE]
BOMBS: dict[str, Callable[[], bytes]] = {
    **{codec.label: partial(bomb, codec) for codec in CODECS},
    "snappy without framing": lambda: bomb(Codec.SNAPPY, raw_snappy(UNPACKED_BYTES + 1)),
    **{
        f"{codec.label} in format v{magic}": partial(wrapper, codec, magic)
        for codec in CODECS
        if codec is not Codec.ZSTD
        for magic in (0, 1)
    },
}


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    return {name: make() for name, make in BOMBS.items()}


@pytest.mark.parametrize("reader", READERS)
def test_bombs(reader: str, bombs: dict[str, bytes]) -> None:
    # Only batches of the latest format are appended.
    taken = {name: data for name, data in bombs.items() if reader != "append" or "format" not in name}
    body = f"CEILING_BYTES = {CEILING_BYTES}\n" + textwrap.dedent(READERS[reader])
    program = PROGRAM.format(reader=body)
    stream = b"".join(b"%s\n%d\n%s" % (name.encode(), len(data), data) for name, data in taken.items())
    done = subprocess.run([sys.executable, "-c", program], input=stream, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    grown = [line.rsplit(" ", 1) for line in done.stdout.decode().splitlines()]
    assert [name for name, _ in grown] == list(taken)
    assert [name for name, count in grown if int(count) >= MEMORY_BYTES] == []
