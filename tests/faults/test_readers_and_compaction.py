"""Readers of every kind and one appender while a log is compacted again and again.

No error, no torn read, offsets that rise; no aborted record for readers of committed data; and who reads from the start
sees at least the last word on every key that had been written when it began.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import duralog
from duralog.format import batches
from duralog.format.record import Record
from duralog.storage.checks.verification import Verification
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

APPENDS = 96
APPENDS_FOR_EACH_COMPACTION = 8
RECORDS = 15
KEYS = 60
TRANSACTIONAL = 7
FIRST_MS = 1_700_000_000_000
CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 20_000,
    "index.interval.bytes": 1000,
    "segment.index.bytes": 4096,
    "file.delete.delay.ms": 0,
    "message.timestamp.before.max.ms": 2**62,
}


def record_of(offset: int, key: int, *, is_aborted: bool = False, is_deleted: bool = False) -> Record:
    """The value contains the offset, so that a reader can check that it got the right record completely."""
    mark = b"aborted " if is_aborted else b"kept "
    return Record(
        key=b"key %d" % key,
        value=None if is_deleted else mark + offset.to_bytes(8) * (offset % 30 + 1),
        timestamp_ms=FIRST_MS + offset,
    )


def is_whole(record: Record) -> bool:
    is_value_right = record.value is None or record.value.endswith(
        b" " + record.offset.to_bytes(8) * (record.offset % 30 + 1)
    )
    return is_value_right and record.timestamp_ms == FIRST_MS + record.offset


class Appender:
    """Appends batches, a third of them in transactions that commit or abort."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.latest: dict[bytes, int] = {}
        """The offset of the last record of each key that readers of committed data have to see."""
        self._random = Random(1)
        self._sequence = 0

    def append(self, number: int) -> None:
        first = self.log.end_offset
        is_transactional = number % 3 == 0
        is_aborted = number % 6 == 0
        records = [
            record_of(
                offset,
                self._random.randrange(KEYS),
                is_aborted=is_aborted,
                is_deleted=self._random.random() < 0.1 and not is_aborted,
            )
            for offset in range(first, first + RECORDS)
        ]
        codec = (None, None, "lz4", "zstd")[number % 4]
        if is_transactional:
            self.log.append(
                records,
                codec=codec,
                producer_id=TRANSACTIONAL,
                producer_epoch=0,
                base_sequence=self._sequence,
                is_transactional=True,
            )
            self._sequence += RECORDS
        else:
            self.log.append(records, codec=codec)
        # Nothing has been compacted of what is at the head.
        assert [(record.offset, record.value) for record in self.log.read(first)] == [
            (offset, record.value) for offset, record in enumerate(records, first)
        ]
        if is_transactional:
            self.log.end_transaction(TRANSACTIONAL, 0, commit=not is_aborted)
        if not is_aborted:
            self.latest = {**self.latest, **{record.key: first + at for at, record in enumerate(records) if record.key}}


class Beside:
    """Threads that do something again and again until the appender is done. What goes wrong is raised by `join`."""

    def __init__(self, appender: Appender) -> None:
        self.appender = appender
        self.log = appender.log
        self.is_done = threading.Event()
        self.times: dict[str, int] = {}
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, *loops: Callable[[Random], None]) -> None:
        for number, loop in enumerate(loops):
            thread = threading.Thread(target=self._run, args=(loop, Random(number)))
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        self.is_done.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self, loop: Callable[[Random], None], random: Random) -> None:
        try:
            while not self.is_done.is_set() and not self.errors:
                loop(random)
                self.times[loop.__name__] = self.times.get(loop.__name__, 0) + 1
        except BaseException as error:
            self.errors.append(error)

    # What readers do

    def read_from_the_start(self, _: Random) -> None:
        latest = self.appender.latest
        self._check_latest(latest, self.log.read(0))

    def read_committed_from_the_start(self, _: Random) -> None:
        latest = self.appender.latest
        self._check_latest(latest, self._never_aborted(self.log.read(0, isolation="read_committed")))

    def _check_latest(self, latest: dict[bytes, int], records: Iterator[Record]) -> None:
        seen: dict[bytes, int] = {}
        last = -1
        for record in records:
            assert record.offset > last
            assert is_whole(record)
            last = record.offset
            assert record.key is not None
            seen[record.key] = record.offset
        for key, offset in latest.items():
            assert seen[key] >= offset

    def _never_aborted(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            assert record.value is None or record.value.startswith(b"kept ")
            yield record

    def read_in_steps_from_anywhere(self, random: Random) -> None:
        """As a consumer does: a little, and on from there."""
        isolation = random.choice(("read_uncommitted", "read_committed"))
        offset = random.randint(0, self.log.end_offset)
        for _ in range(50):
            last = offset - 1
            for record in self.log.read(offset, isolation=isolation, max_bytes=3000):
                assert record.offset > last
                assert is_whole(record)
                last = record.offset
            # If there was none, all of what was read was markers, or aborted.
            offset = min(max(last + 1, offset + 1), self.log.end_offset)

    def read_tables(self, _: Random) -> None:
        offsets = self.log.read_arrow(columns=["offset"]).column("offset").to_pylist()
        assert offsets == sorted(set(offsets))

    def read_slices(self, random: Random) -> None:
        offset = random.randint(0, self.log.end_offset)
        data = self.log.read_slice(offset, 5000).read()
        found = list(batches.scan(data))
        assert all(batch.crc_ok for batch in found)
        assert not found or found[0].last_offset >= offset

    def look_up_times(self, random: Random) -> None:
        wanted = FIRST_MS + random.randint(0, self.log.end_offset)
        found = self.log.offset_for_timestamp(wanted)
        if found is not None:
            assert found.timestamp_ms >= wanted
            assert all(record.offset >= found.offset for record in self.log.read(found.offset, max_bytes=1000))


class Compactor:
    """Compacts in a thread of its own, as often as it is asked to."""

    def __init__(self, store: Store, beside: Beside) -> None:
        self.store = store
        self.beside = beside
        self.dropped_records = 0
        self.compactions = 0
        self._asked = threading.Semaphore(0)
        self._is_free = threading.Semaphore(1)

    def ask(self) -> None:
        """Compact beside what follows, after the last time is over."""
        while not self._is_free.acquire(timeout=1):
            assert not self.beside.errors
        self._asked.release()

    def compact(self, _: Random) -> None:
        if self._asked.acquire(timeout=0.1):
            report = self.store.compact("t", 0)
            self.dropped_records += report.records_before - report.records_after
            self.compactions += 1
            self._is_free.release()


def test_readers_see_whole_records_in_order_while_the_log_is_compacted(tmp_path: Path, randomised: int) -> None:
    appends = APPENDS * randomised
    with duralog.open(tmp_path, config={"log.cleaner.enable": False}) as store:
        store.create_topic("t", partitions=1, config=CONFIG)
        log = store.partition("t", 0)
        appender = Appender(log)
        beside = Beside(appender)
        compactor = Compactor(store, beside)
        beside.start(
            beside.read_from_the_start,
            beside.read_committed_from_the_start,
            beside.read_in_steps_from_anywhere,
            beside.read_tables,
            beside.read_slices,
            beside.look_up_times,
            compactor.compact,
        )
        try:
            for number in range(appends):
                appender.append(number)
                if number % APPENDS_FOR_EACH_COMPACTION == APPENDS_FOR_EACH_COMPACTION - 1:
                    compactor.ask()
            compactor.ask()
        finally:
            beside.join()
        assert compactor.compactions >= appends // APPENDS_FOR_EACH_COMPACTION
        assert compactor.dropped_records > appends * RECORDS // 2
        assert set(beside.times) >= {"read_from_the_start", "read_in_steps_from_anywhere", "look_up_times"}
        assert store.background_errors == ()
        beside.read_from_the_start(Random())
        end_offset = log.end_offset
    with duralog.open(tmp_path) as store:
        assert store.partition("t", 0).end_offset == end_offset
    for report in Verification(str(tmp_path)).run():
        assert [str(error) for error in report.errors] == []
