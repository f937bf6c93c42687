"""Small batches that unpack to half a gigabyte: refused at the ceiling, in bounded memory, by codec and reader."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zlib

import cramjam
import pytest

from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record

UNPACKED_BYTES = 512 << 20
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
log = sys.stdin.buffer.read()
read(record_batch.encode([Record(value=b"sound")]))
before = peak()
try:
    read(log)
except CorruptRecord as error:
    assert error.fault is Fault.TOO_LARGE, error
    assert str(CEILING_BYTES) in str(error), error
else:
    sys.exit("the bomb was read")
print(peak() - before)
"""


def bomb(codec: Codec) -> bytes:
    """A batch whose records are a stream of zeros, made without unpacking it in memory twice."""
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
    whole = bytearray(record_batch.encode([Record(value=b"")], codec=codec)[: BATCH_V2.size] + packed)
    at = BATCH_V2.at
    whole[at.length : at.length + 4] = (len(whole) - at.leader_epoch).to_bytes(4, "big")
    whole[at.crc : at.crc + 4] = crc32c(bytes(whole[at.attributes :])).to_bytes(4, "big")
    return bytes(whole)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE], ids=lambda codec: codec.label)
def test_bomb(codec: Codec, reader: str) -> None:
    body = f"CEILING_BYTES = {CEILING_BYTES}\n" + textwrap.dedent(READERS[reader])
    program = PROGRAM.format(reader=body)
    done = subprocess.run([sys.executable, "-c", program], input=bomb(codec), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < MEMORY_BYTES
