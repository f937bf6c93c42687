"""Records of a segment, by duralog or by a client library: READER FILE BYTES PASSES, on the first BYTES of the file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bench.workers.passes import timed


def duralog(file: str, size_bytes: int) -> Callable[[], int]:
    import pyarrow as pa

    from duralog.columnar.pieces import read_pieces
    from duralog.storage.files import FileSource

    pa.set_cpu_count(1)
    source = FileSource(file)

    def work() -> int:
        records = 0
        for piece in read_pieces(source, end=min(size_bytes, source.size), check_crc=True):
            for decoded in piece.decode():
                records += decoded.to_arrow(topic="orders", partition=0).num_rows
        return records

    return work


def aiokafka(file: str, size_bytes: int) -> Callable[[], int]:
    from aiokafka.record.memory_records import MemoryRecords

    return _client(MemoryRecords, file, size_bytes)


def kafka_python(file: str, size_bytes: int) -> Callable[[], int]:
    from kafka.record.memory_records import MemoryRecords

    return _client(MemoryRecords, file, size_bytes)


def _client(memory_records: Any, file: str, size_bytes: int) -> Callable[[], int]:
    with open(file, "rb") as log:
        data = log.read(size_bytes)

    def work() -> int:
        count = 0
        batches = memory_records(data)
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise SystemExit("a CRC is wrong")
            for _ in batch:
                count += 1
        return count

    return work


READERS = {reader.__name__: reader for reader in (duralog, aiokafka, kafka_python)}

if __name__ == "__main__":
    timed(READERS[sys.argv[1]](sys.argv[2], int(sys.argv[3])), int(sys.argv[4]))
