"""The batches of a partition's folder, decoded by the plain format code: no kernels, no indexes, no store."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX
from duralog.format.record import Record


class PlainBatch(NamedTuple):
    data: bytes
    last_offset: int
    records: list[Record]


def plain_batches(folder: Path) -> list[PlainBatch]:
    """All batches, in order. REQUIRES: they are of format v2, and whole."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position < len(data):
            _, length = ENTRY_PREFIX.unpack(data[position:])
            batch = data[position : position + ENTRY_PREFIX.size + length]
            header = record_batch.decode_header(batch, 0)
            assert header.crc == crc32c(batch[BATCH_V2.at.attributes :])
            records = [] if header.is_control else list(record_batch.decode_records(batch, header))
            found.append(PlainBatch(batch, header.last_offset, records))
            position += len(batch)
    return found
