"""Records to v2 batches, by duralog or by a client library: WRITER FILE CODEC RECORDS PASSES.

The records are the first ones of the file; reading them is not timed. The batches are made and dropped.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from bench.workers.passes import timed

_BATCH_BYTES = 16384
_CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def duralog(file: str, codec: str, records: int) -> Callable[[], int]:
    import pyarrow as pa

    from duralog.columnar.encode_columns import BatchSettings, encode_columns
    from duralog.columnar.pieces import read_pieces
    from duralog.columnar.writable import writable_columns
    from duralog.format.compression import Codec
    from duralog.storage.disk.file_source import FileSource

    pa.set_cpu_count(1)
    read: list[pa.RecordBatch] = []
    with FileSource(file) as source:
        for piece in read_pieces(source):
            read += [decoded.to_arrow(columns=["timestamp", "key", "value"]) for decoded in piece.decode()]
            if sum(rows.num_rows for rows in read) >= records:
                break
    table = pa.Table.from_batches(read).slice(0, records).combine_chunks()

    def work() -> int:
        settings = BatchSettings(codec=Codec.named(codec), batch_bytes=_BATCH_BYTES)
        return encode_columns(writable_columns(table, base_offset=0), settings).record_count

    return work


def aiokafka(file: str, codec: str, records: int) -> Callable[[], int]:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords

    return _client(DefaultRecordBatchBuilder, MemoryRecords, file, codec, records)


def kafka_python(file: str, codec: str, records: int) -> Callable[[], int]:
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

    return _client(DefaultRecordBatchBuilder, MemoryRecords, file, codec, records)


def _client(builder: Any, memory_records: Any, file: str, codec: str, records: int) -> Callable[[], int]:
    with open(file, "rb") as log:
        data = log.read(records * 150)
    rows = [(one.timestamp, bytes(one.key), bytes(one.value)) for one in _records(memory_records(data), records)]

    def new_batch() -> Any:
        return builder(
            magic=2,
            compression_type=_CODEC_IDS[codec],
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=_BATCH_BYTES,
        )

    def work() -> int:
        batch = new_batch()
        offset = 0
        for timestamp, key, value in rows:
            if batch.append(offset, timestamp, key, value, []) is None:
                batch.build()
                batch = new_batch()
                offset = 0
                batch.append(offset, timestamp, key, value, [])
            offset += 1
        batch.build()
        return len(rows)

    return work


def _records(batches: Any, count: int) -> Iterator[Any]:
    def every() -> Iterator[Any]:
        while batches.has_next():
            yield from batches.next_batch()

    return itertools.islice(every(), count)


WRITERS = {writer.__name__: writer for writer in (duralog, aiokafka, kafka_python)}

if __name__ == "__main__":
    timed(WRITERS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])), int(sys.argv[5]))
