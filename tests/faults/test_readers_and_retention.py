"""Many readers and one appender while retention deletes: no error, no torn read, and offsets that rise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import duralog
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog

READERS = 6
APPENDS = 400
RECORDS = 20
CONFIG = {
    "internal.segment.bytes": 40_000,
    "retention.bytes": 120_000,
    "index.interval.bytes": 1000,
    "segment.index.bytes": 4096,
    "file.delete.delay.ms": 0,
}


def value_of(offset: int) -> bytes:
    return offset.to_bytes(8) * (offset % 30 + 1)


class Readers:
    """Threads that read until the appender is done. What goes wrong in one of them is raised by `join`."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.is_done = threading.Event()
        self.reads = 0
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, *loops: Callable[[], None]) -> None:
        for loop in loops:
            thread = threading.Thread(target=self._run, args=(loop,))
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        self.is_done.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            while not self.is_done.is_set() and not self._errors:
                loop()
                self.reads += 1
        except BaseException as error:
            self._errors.append(error)

    def follow(self) -> None:
        """Read all that there is, from the start to the end."""
        last = -1
        for record in self._from(self.log.start_offset):
            assert record.offset > last
            assert record.value == value_of(record.offset)
            last = record.offset

    def follow_in_steps(self) -> None:
        """Read a little, and go on from there, as a consumer does."""
        offset = self.log.start_offset
        while offset < self.log.end_offset and not self.is_done.is_set():
            try:
                records = list(self.log.read(offset, max_bytes=3000))
            except duralog.OffsetOutOfRange:
                offset = self.log.start_offset
                continue
            assert records
            for record in records:
                assert record.offset >= offset
                assert record.value == value_of(record.offset)
                offset = record.offset + 1

    def read_tables(self) -> None:
        try:
            table = self.log.read_arrow()
        except duralog.OffsetOutOfRange:
            return
        offsets = table.column("offset").to_pylist()
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True

    def look_up(self) -> None:
        """Times and slices of bytes."""
        offset = self.log.end_offset // 2
        try:
            fetched = self.log.read_slice(max(offset, self.log.start_offset), 2000)
        except duralog.OffsetOutOfRange:
            return
        assert fetched is not None
        found = self.log.offset_for_timestamp(1)
        assert found is None or found.offset >= 0

    def _from(self, offset: int) -> list[Record]:
        try:
            return list(self.log.read(offset))
        except duralog.OffsetOutOfRange:
            # Retention was faster than the reader.
            return []


def test_readers_see_whole_records_in_order_while_segments_go(tmp_path: Path, randomised: int) -> None:
    with duralog.open(tmp_path) as store:
        store.create_topic("t", partitions=1, config=CONFIG)
        log = store.partition("t", 0)
        readers = Readers(log)
        readers.start(
            *[readers.follow, readers.follow_in_steps] * (READERS // 3),
            *[readers.read_tables, readers.look_up] * (READERS // 6),
        )
        try:
            for number in range(APPENDS * randomised):
                first = log.end_offset
                log.append(
                    [Record(value=value_of(first + one)) for one in range(RECORDS)],
                    codec=(None, None, "lz4")[number % 3],
                )
                if number % 20 == 19:
                    store.apply_retention()
                if number % 50 == 49:
                    log.flush()
        finally:
            readers.join()
        assert readers.reads > 0
        assert log.start_offset > 0
        assert log.end_offset == APPENDS * RECORDS * randomised
        assert store.background_errors == ()
        values = [record.value for record in log.read(log.start_offset)]
        assert values == [value_of(offset) for offset in range(log.start_offset, log.end_offset)]
    with duralog.open(tmp_path) as store:
        assert store.partition("t", 0).end_offset == APPENDS * RECORDS * randomised
