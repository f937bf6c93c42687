"""Power is lost while a directory is busy: it opens again, and each change of topics is there whole or not at all.

`--randomised 40` makes it some thousands of crashes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from duralog.config import BrokerConfig
from duralog.format.record import Record
from duralog.storage.disk.background import Clock, Scheduler
from duralog.storage.store import Store
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost

LIVES = 2
STEPS = 40
CRASHES_AMONG_CHANGES = 0.05
"""There are many changes, and opening a whole directory takes its time."""
PATHS = ("/data", "/disk2")
"""Every second life has two directories, and moves partitions between them."""
CONFIG = BrokerConfig.of(
    {
        "log.index.size.max.bytes": 1024,
        "log.segment.delete.delay.ms": 1000,
        "log.initial.task.delay.ms": 0,
        "num.recovery.threads.per.data.dir": 1,
    }
)


@dataclass
class Topic:
    topic_id: str
    partitions: int
    overrides: dict[str, str]
    flushed: dict[int, list[bytes]] = field(default_factory=dict)
    written: dict[int, list[bytes]] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    """How far records were asked to be deleted."""


@dataclass
class Book:
    """What was asked for and confirmed, and the one thing that is under way."""

    topics: dict[str, Topic] = field(default_factory=dict)
    deleted_ids: set[str] = field(default_factory=set)
    under_way: str | None = None
    """The topic that is just being created, changed or deleted."""

    def check(self, store: Store) -> None:
        assert not store.offline
        for name, topic in self.topics.items():
            if name == self.under_way:
                if name not in store.topics():
                    continue
                assert store.topic_id(name) == topic.topic_id
            else:
                assert store.topic_id(name) == topic.topic_id
                assert store.partitions(name) == list(range(topic.partitions))
                assert store.topic_overrides(name) == topic.overrides
            for number in range(topic.partitions):
                log = store.partition(name, number)
                assert log.start_offset <= topic.start.get(number, 0)
                written, flushed = topic.written.get(number, []), topic.flushed.get(number, [])
                found = {record.offset: record.value for record in log.read(log.start_offset)}
                assert all(written[offset] == value for offset, value in found.items())
                assert found.keys() >= set(range(log.start_offset, len(flushed)))
                assert log.end_offset >= len(flushed)
        for name in store.topics():
            assert store.topic_id(name) not in self.deleted_ids
            assert name in self.topics or name == self.under_way


class Life:
    """Random changes of one directory."""

    def __init__(self, files: CrashingFiles, seed: int) -> None:
        self.files = files
        self.paths = paths_of(seed)
        self.random = Random(seed)
        self.book = Book()
        self.now_ms = START_MS
        self.open()

    def open(self) -> None:
        self.scheduler = Scheduler(lambda: self.now_ms, threads=0)
        self.store = open_store(self.files, self.paths, self.scheduler, lambda: self.now_ms)

    def run(self, steps: int) -> None:
        actions = [self.create, self.append, self.append, self.append, self.trim, self.alter, self.grow, self.delete]
        actions += [self.move, self.move] if len(self.paths) > 1 else []
        for _ in range(steps):
            self.random.choice([*actions, self.pass_time, self.pass_time, self.reopen])()
            self.book.under_way = None

    def any_topic(self) -> tuple[str, Topic] | None:
        return self.random.choice([*self.book.topics.items()]) if self.book.topics else None

    def create(self) -> None:
        name = f"t{self.random.randrange(6)}"
        if name in self.book.topics:
            return
        self.book.under_way = name
        count = self.random.randint(1, 2)
        topic_id = self.store.create_topic(name, count, {"retention.ms": 5000})
        self.book.topics[name] = Topic(topic_id, count, {"retention.ms": "5000"})

    def append(self) -> None:
        chosen = self.any_topic()
        if chosen is None:
            return
        name, topic = chosen
        number = self.random.randrange(topic.partitions)
        log = self.store.partition(name, number)
        written = topic.written.setdefault(number, [])
        new = [b"%d" % (len(written) + place) for place in range(self.random.randint(1, 3))]
        written += new
        log.append([Record(value=value, timestamp_ms=self.now_ms) for value in new])
        if self.random.random() < 0.5:
            log.flush()
            topic.flushed[number] = list(written)
        if self.random.random() < 0.3:
            log.roll()

    def move(self) -> None:
        chosen = self.any_topic()
        if chosen is not None:
            name, topic = chosen
            number = self.random.randrange(topic.partitions)
            self.store.move_partition(name, number, self.random.choice(self.paths))
            topic.flushed[number] = list(topic.written.get(number, []))

    def trim(self) -> None:
        chosen = self.any_topic()
        if chosen is not None:
            name, topic = chosen
            log = self.store.partition(name, 0)
            topic.start[0] = max(topic.start.get(0, 0), log.end_offset)
            log.delete_records(log.end_offset)
            self.store.apply_retention()

    def alter(self) -> None:
        chosen = self.any_topic()
        if chosen is not None:
            name, topic = chosen
            self.book.under_way = name
            value = str(self.random.randint(1000, 9000))
            self.store.alter_topic_config(name, {"retention.ms": value})
            topic.overrides["retention.ms"] = value

    def grow(self) -> None:
        chosen = self.any_topic()
        if chosen is not None:
            name, topic = chosen
            self.book.under_way = name
            self.store.add_partitions(name, topic.partitions + 1)
            topic.partitions += 1

    def delete(self) -> None:
        chosen = self.any_topic()
        if chosen is not None:
            name, topic = chosen
            self.book.under_way = name
            self.store.delete_topic(name)
            del self.book.topics[name]
            self.book.deleted_ids.add(topic.topic_id)

    def pass_time(self) -> None:
        for topic in self.book.topics.values():
            # Retention may take all of it from here on.
            topic.start = {number: len(written) for number, written in topic.written.items()}
        self.now_ms += self.random.choice((600, 6000, 60_000))
        self.scheduler.run_due()
        assert self.store.background_errors == ()

    def reopen(self) -> None:
        self.store.close()
        for topic in self.book.topics.values():
            topic.flushed = copy.deepcopy(topic.written)
        self.open()
        self.book.check(self.store)


def paths_of(seed: int) -> Sequence[str]:
    return PATHS[: 1 + seed % 2]


def open_store(files: CrashingFiles, paths: Sequence[str], scheduler: Scheduler, clock: Clock) -> Store:
    return Store(paths, config=CONFIG, file_system=files, clock=clock, scheduler=scheduler)


def check_aftermath(found: CrashingFiles, book: Book, now_ms: int, random: Random, paths: Sequence[str]) -> None:
    def start(files: CrashingFiles) -> Store:
        return open_store(files, paths, Scheduler(lambda: now_ms, threads=0), lambda: now_ms)

    if random.random() < 0.3:
        found.lose_power_after(random.randint(0, 40))
        with suppress(PowerLost):
            start(found)
        found = found.after_power_loss(random.getrandbits(32))
    store = start(found)
    book.check(store)
    name = f"new{random.randrange(1000)}"
    topic_id = store.create_topic(name, 1)
    store.partition(name, 0).append([Record(value=b"x")])
    store.close()
    again = start(found)
    assert again.topic_id(name) == topic_id
    assert [record.value for record in again.partition(name, 0).read(0)] == [b"x"]
    again.close()


def crash_here_and_there(seed: int) -> int:
    """Live one life, and look at what a crash at some of the changes would leave. Returns how many there were."""
    random = Random(seed)
    files = CrashingFiles(seed=seed, write_back=random.choice((0, 0.1, 0.5)))
    crashes = 0
    failures: list[Exception] = []
    life: Life | None = None

    def crash() -> None:
        nonlocal crashes
        if random.random() > CRASHES_AMONG_CHANGES / len(paths_of(seed)) ** 2:
            return
        crashes += 1
        fate = random.getrandbits(32)
        book = copy.deepcopy(life.book) if life is not None else Book()
        now_ms = life.now_ms if life is not None else START_MS
        try:
            check_aftermath(files.after_power_loss(fate), book, now_ms, Random(fate), paths_of(seed))
        except Exception as error:
            error.add_note(f"life {seed}, change {files.changes}, fate {fate}")
            # Not raised here: the store could take it for an error of the disk.
            failures.append(error)

    files.on_change = crash
    life = Life(files, seed)
    life.run(STEPS)
    life.store.close()
    if failures:
        raise failures[0]
    return crashes


@pytest.mark.parametrize("life", range(LIVES))
def test_a_crash_at_any_change_leaves_a_directory_that_opens(life: int, randomised: int) -> None:
    crashes = sum(crash_here_and_there(life + LIVES * round) for round in range(randomised))
    assert crashes > 5 * randomised
