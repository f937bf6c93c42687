"""Runs of batches of any format version, as a `.log` file or a Fetch answer holds them.

`scan` reads headers only. A batch that runs past the end of the bytes ends the scan silently: a file's tail may be
half written, and a Fetch answer may end anywhere. A length or a version that no batch can have raises, after the
batches before it were yielded: what follows cannot be found any more. A wrong checksum does not end a scan, since
the length still leads to the next batch; it is the verdict `Batch.crc_ok`.
"""

from __future__ import annotations

from collections.abc import Iterator

from duralog.format import message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.format.framing import whole_batch_bytes
from duralog.format.layout import MAGIC_POSITION
from duralog.format.record import Record
from duralog.format.varint import Bytes


def scan(buffer: Bytes, start: int = 0, end: int | None = None) -> Iterator[Batch]:
    """The whole batches from `start` to `end`."""
    view = memoryview(buffer)
    if end is None:
        end = len(view)
    position = start
    while (size_bytes := whole_batch_bytes(view, position, end)) is not None:
        if view[position + MAGIC_POSITION] == record_batch.MAGIC:
            yield record_batch.decode_header(view, position)
        else:
            yield message_set.decode_header(view, position)
        position += size_bytes


def decode_records(
    buffer: Bytes, batch: Batch, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The records of a batch that was scanned in the same buffer."""
    if batch.magic == record_batch.MAGIC:
        return record_batch.decode_records(buffer, batch, max_decompressed_bytes=max_decompressed_bytes)
    return message_set.decode_records(buffer, batch, max_decompressed_bytes=max_decompressed_bytes)
