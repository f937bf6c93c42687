"""Records of a segment, by duralog or by a client library: READER FILE BYTES PASSES, on the first BYTES of the file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from bench.workers.passes import timed

_ROWS_IN_A_BATCH = 65_536


def duralog(file: str, size_bytes: int) -> Callable[[], int]:
    import pyarrow as pa

    from duralog.columnar.pieces import read_pieces
    from duralog.storage.disk.file_source import FileSource

    pa.set_cpu_count(1)
    source = FileSource(file)

    def work() -> int:
        records = 0
        for piece in read_pieces(source, end=min(size_bytes, source.size), check_crc=True):
            records += sum(batch.num_rows for batch in piece.to_arrow(topic="orders", partition=0))
        return records

    return work


def duralog_in_memory(file: str, size_bytes: int) -> Callable[[], int]:
    """Of bytes that are in memory already, as those of the clients are."""
    import pyarrow as pa

    from duralog.columnar.pieces import MemorySource, read_pieces

    pa.set_cpu_count(1)
    source = MemorySource(_first_bytes(file, size_bytes))

    def work() -> int:
        pieces = read_pieces(source, check_crc=True)
        return sum(batch.num_rows for piece in pieces for batch in piece.to_arrow(topic="orders", partition=0))

    return work


def aiokafka(file: str, size_bytes: int) -> Callable[[], int]:
    from aiokafka.record.memory_records import MemoryRecords

    return _record_reader(MemoryRecords, file, size_bytes)


def aiokafka_untouched(file: str, size_bytes: int) -> Callable[[], int]:
    """Nothing but the reader: what a caller does with a record is not counted against it."""
    from aiokafka.record.memory_records import MemoryRecords

    data = _first_bytes(file, size_bytes)

    def work() -> int:
        count = 0
        for batch in _checked_batches(MemoryRecords, data):
            for _ in batch:
                count += 1
        return count

    return work


def aiokafka_to_arrow(file: str, size_bytes: int) -> Callable[[], int]:
    """The same result as duralog's, by way of the client's records."""
    import pyarrow as pa
    from aiokafka.record.memory_records import MemoryRecords

    from duralog.columnar.schema import RECORD_SCHEMA

    pa.set_cpu_count(1)
    data = _first_bytes(file, size_bytes)

    def work() -> int:
        count = 0
        columns: list[list[Any]] = [[] for _ in RECORD_SCHEMA]
        _, _, offset, timestamp, timestamp_type, key, value, headers = columns
        for batch in _checked_batches(MemoryRecords, data):
            for one in batch:
                offset.append(one.offset)
                timestamp.append(one.timestamp)
                timestamp_type.append(one.timestamp_type)
                key.append(one.key)
                value.append(one.value)
                headers.append(one.headers)
            if len(offset) >= _ROWS_IN_A_BATCH:
                count += flush(columns)
        return count + flush(columns)

    def flush(columns: list[list[Any]]) -> int:
        rows = len(columns[2])
        columns[0] += ["orders"] * rows
        columns[1] += [0] * rows
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
        for column in columns:
            column.clear()
        return int(pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA).num_rows)

    return work


def kafka_python(file: str, size_bytes: int) -> Callable[[], int]:
    from kafka.record.memory_records import MemoryRecords

    return _record_reader(MemoryRecords, file, size_bytes)


def _record_reader(memory_records: Any, file: str, size_bytes: int) -> Callable[[], int]:
    data = _first_bytes(file, size_bytes)

    def work() -> int:
        count = 0
        for batch in _checked_batches(memory_records, data):
            for one in batch:
                _ = one.offset, one.timestamp, one.key, one.value, one.headers
                count += 1
        return count

    return work


def _checked_batches(memory_records: Any, data: bytes) -> Iterator[Any]:
    batches = memory_records(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a CRC is wrong")
        yield batch


def _first_bytes(file: str, size_bytes: int) -> bytes:
    with open(file, "rb") as log:
        return log.read(size_bytes)


READERS = {
    reader.__name__: reader
    for reader in (duralog, duralog_in_memory, aiokafka, aiokafka_untouched, aiokafka_to_arrow, kafka_python)
}

if __name__ == "__main__":
    timed(READERS[sys.argv[1]](sys.argv[2], int(sys.argv[3])), int(sys.argv[4]))
