"""Measures the log: appends, reads, verification, recovery and compaction, each timed once.

It works in a scratch directory. A first run with little data compiles the kernels before the clock starts. Memory does
not grow with the size: data is appended from one template and read in pieces.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from duralog.cli.bench.data import Workload
from duralog.cli.bench.rows import APPEND_BATCHES, LOG, READ, WRITE, Row
from duralog.config import BrokerConfig
from duralog.format.filenames import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT
from duralog.storage.checks.verification import Verification
from duralog.storage.compaction.cleaner import reports_only
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store

if TYPE_CHECKING:
    from duralog.storage.log.partition_log import PartitionLog

    Begin = Callable[[str], None]
    Advance = Callable[[int], None]

SLOW_PART = 8
"""Measurements that create a Python object for each record get an eighth of the data."""
_PIECE_BYTES = 32 << 20
_RECORDS_AT_ONCE = 1_000
_SMALLEST_SEGMENT = 16 << 20
_THREADS = 2
_WARM_UP_BYTES = 1 << 20
_BASE_OFFSET = slice(0, 8)

_APPENDED, _RECORDS, _TABLES, _KEYED = "batches", "records", "tables", "keyed"


def planned_bytes(size_bytes: int) -> int:
    """The total of all progress steps."""
    return 6 * size_bytes + 2 * (size_bytes // SLOW_PART)


def log_rows(folder: str, work: Workload, begin: Begin, advance: Advance) -> Iterator[Row]:
    small = Workload(max(_WARM_UP_BYTES, work.record_bytes), work.record_bytes, work.codec)
    begin("loading kernels")
    for _ in _Measured(os.path.join(folder, "small"), small, lambda _: None, lambda _: None).rows():
        pass
    work.prepare()
    yield from _Measured(os.path.join(folder, "log"), work, begin, advance).rows()


class _Measured:
    def __init__(self, path: str, work: Workload, begin: Begin, advance: Advance) -> None:
        self._path = path
        self._work = work
        self._begin = begin
        self._advance = advance
        segment = max(_SMALLEST_SEGMENT, work.size_bytes // 4, 2 * work.record_bytes)
        self._config = BrokerConfig.of(
            {
                "log.segment.bytes": min(segment, 1 << 30),
                "log.retention.ms": -1,
                "log.cleaner.enable": False,
                "log.segment.delete.delay.ms": 0,
                "message.max.bytes": (1 << 20) + 2 * work.record_bytes,
            }
        )

    def rows(self) -> Iterator[Row]:
        with self._opened() as store:
            for topic in (_APPENDED, _RECORDS, _TABLES):
                store.create_topic(topic, 1)
            store.create_topic(_KEYED, 1, {"cleanup.policy": "compact"})
            log = store.partition(_APPENDED, 0)
            yield self._row(APPEND_BATCHES, WRITE, lambda: self._append_batches(log))
            size = _size_of(log)
            yield self._row("append records", WRITE, lambda: self._append_records(store.partition(_RECORDS, 0)))
            yield self._row("append tables", WRITE, lambda: self._append_tables(store.partition(_TABLES, 0)))
            # Free their disk space.
            store.delete_topic(_RECORDS)
            store.delete_topic(_TABLES)
            yield self._row("read tables", READ, lambda: self._read_tables(log))
            yield self._row("read records", READ, lambda: self._read_records(log))
        yield self._row("verify", READ, self._verify)
        self._remove_shutdown_marker()
        yield self._row("recover", READ, lambda: self._recover(size))
        yield self._compaction()

    def _row(self, name: str, limit: str, work: Callable[[], tuple[int, int]]) -> Row:
        """`work` returns the number of records and the bytes of files that it went through."""
        self._begin(name)
        began = time.perf_counter()
        records, file_bytes = work()
        return Row(
            of=LOG,
            name=name,
            seconds=time.perf_counter() - began,
            data_bytes=records * self._work.record_bytes,
            file_bytes=file_bytes,
            records=records,
            limit=limit,
        )

    def _opened(self, **options: Any) -> Store:
        # No background threads during a measurement.
        return Store(self._path, config=self._config, scheduler=Scheduler(threads=0), **options)

    # Appends

    def _append_batches(self, log: PartitionLog) -> tuple[int, int]:
        batches = self._work.batches
        data_bytes = self._work.record_bytes
        first = bytes(8)
        for _ in range(self._work.times()):
            for batch, records in batches:
                # The last append has written its offset there.
                batch[_BASE_OFFSET] = first
                log.append_batches(batch)
                self._advance(records * data_bytes)
        return log.end_offset, _size_of(log)

    def _append_records(self, log: PartitionLog) -> tuple[int, int]:
        records = self._work.records
        at_once = max(1, min(_RECORDS_AT_ONCE, (1 << 20) // self._work.record_bytes))
        codec = self._work.codec.name.lower()
        for _ in range(self._work.times(SLOW_PART)):
            for first in range(0, len(records), at_once):
                some = records[first : first + at_once]
                log.append(some, codec=codec)
                self._advance(len(some) * self._work.record_bytes)
        return log.end_offset, _size_of(log)

    def _append_tables(self, log: PartitionLog) -> tuple[int, int]:
        table = self._work.table
        codec = self._work.codec.name.lower()
        for _ in range(self._work.times()):
            log.append_arrow(table, codec)
            self._advance(self._work.template_bytes)
        return log.end_offset, _size_of(log)

    # Reads

    def _read_tables(self, log: PartitionLog) -> tuple[int, int]:
        step = max(1, _PIECE_BYTES // self._work.record_bytes)
        rows = 0
        for start in range(0, log.end_offset, step):
            got = log.read_arrow(start, min(start + step, log.end_offset)).num_rows
            rows += got
            self._advance(got * self._work.record_bytes)
        return rows, _size_of(log)

    def _read_records(self, log: PartitionLog) -> tuple[int, int]:
        wanted = max(1, log.end_offset // SLOW_PART)
        count = 0
        for record in log.read(0):
            count += 1
            if not count % _RECORDS_AT_ONCE:
                self._advance(_RECORDS_AT_ONCE * self._work.record_bytes)
            if record.offset + 1 >= wanted:
                break
        return count, _size_of(log) * count // max(1, log.end_offset)

    def _verify(self) -> tuple[int, int]:
        verification = Verification(self._path, topics=[_APPENDED], threads=_THREADS)
        done = 0

        def show(read: int, _: str) -> None:
            nonlocal done
            self._advance(read - done)
            done = read

        for _ in verification.run(show):
            pass
        counts = verification.totals.counts
        return counts.records, counts.size_bytes

    # After a crash

    def _remove_shutdown_marker(self) -> None:
        for name in (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT):
            os.remove(os.path.join(self._path, name))

    def _recover(self, size: int) -> tuple[int, int]:
        with self._opened() as store:
            self._advance(self._work.size_bytes)
            return store.partition(_APPENDED, 0).end_offset, size

    # Compaction

    def _compaction(self) -> Row:
        self._begin("compact")
        with self._opened() as store:
            store.delete_topic(_APPENDED)
            log = store.partition(_KEYED, 0)
            self._append_batches(log)
            log.roll()
            with reports_only():
                report = store.compact(_KEYED, 0, workers=_THREADS)
        return Row(
            of=LOG,
            name="compact",
            seconds=report.seconds,
            data_bytes=report.records_before * self._work.record_bytes,
            file_bytes=report.bytes_before,
            records=report.records_before,
            limit=READ,
        )


def _size_of(log: PartitionLog) -> int:
    return sum(segment.size_bytes for segment in log.segments)
