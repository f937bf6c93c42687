"""Snapshots of a directory that is refreshed: rates, configs, and a directory that goes away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duralog
from duralog.config import BrokerConfig
from duralog.console.sources.directory.snapshots import DirectorySnapshots
from duralog.console.sources.rates import MOST_SAMPLES, History, SizeHistory
from duralog.storage.store import Store

KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with duralog.open(tmp_path / "data", KEEP) as opened:
        opened.create_topic("orders", 1)
        yield opened


def append(store: Store, count: int = 10, topic: str = "orders") -> None:
    records = [duralog.Record(key=b"k", value=bytes(100), timestamp_ms=1_000 + place) for place in range(count)]
    store.partition(topic, 0).append(records)


def copied(store: Store, tmp_path: Path) -> Path:
    """To be damaged: files of a store that is open are mapped."""
    return Path(shutil.copytree(store.path, tmp_path / "copy"))


def snapshots(store: Store, clock: Clock) -> DirectorySnapshots:
    made = DirectorySnapshots(store.path, BrokerConfig(), clock)
    made.step()
    return made


def test_rates_are_what_came_between_two_refreshes(store: Store, clock: Clock) -> None:
    append(store)
    looking = snapshots(store, clock)
    assert looking.newest.overview.records_in_per_second is None
    size = store.partition("orders", 0).size_bytes
    append(store, 30)
    clock.now_ms += 2_000
    looking.step()
    overview = looking.newest.overview
    assert overview.records_in_per_second == 15.0
    assert overview.bytes_in_per_second == (store.partition("orders", 0).size_bytes - size) / 2
    (topic,) = overview.topics
    assert topic.recent == (None, 15.0)
    assert looking.newest.rows["orders"][0].records_in_per_second == 15.0
    clock.now_ms += 2_000
    looking.step()
    assert looking.newest.overview.records_in_per_second == 0.0


def test_a_roll_counts_and_retention_does_not(store: Store, clock: Clock) -> None:
    append(store)
    looking = snapshots(store, clock)
    log = store.partition("orders", 0)
    before = log.size_bytes
    append(store, 10)
    log.roll()
    append(store, 10)
    grown = log.size_bytes - before
    clock.now_ms += 1_000
    looking.step()
    assert looking.newest.overview.bytes_in_per_second == grown
    log.delete_segments([0], "a test")
    clock.now_ms += 1_000
    looking.step()
    assert looking.newest.overview.bytes_in_per_second == 0.0
    assert looking.newest.rows["orders"][0].segments == 1
    assert looking.newest.rows["orders"][0].start_offset == 20


def test_deleted_records_are_not_counted(store: Store, clock: Clock) -> None:
    append(store, 30)
    store.partition("orders", 0).delete_records(12)
    store._upkeep.checkpoint()
    (topic,) = snapshots(store, clock).newest.overview.topics
    assert topic.records == 18


def test_a_directory_that_disappears_is_reported_and_found_again(store: Store, clock: Clock, tmp_path: Path) -> None:
    append(store)
    copy = str(copied(store, tmp_path))
    looking = DirectorySnapshots(copy, BrokerConfig.of({"log.retention.ms": -1}), clock)
    looking.step()
    os.rename(copy, f"{copy}-away")
    looking.step()
    overview = looking.newest.overview
    assert not overview.is_online
    assert overview.notes[0].startswith(f"{copy} cannot be read")
    assert [topic.name for topic in overview.topics] == ["orders"]
    os.rename(f"{copy}-away", copy)
    looking.step()
    assert looking.newest.overview.is_online
    assert looking.newest.overview.notes == ()


def test_configs_are_read_again_when_they_change(store: Store, clock: Clock) -> None:
    looking = snapshots(store, clock)
    assert looking.newest.overview.topics[0].policy == "delete"
    opened = looking.store.find_topic("orders")
    looking.step()
    assert looking.store.find_topic("orders") is opened
    store.alter_topic_config("orders", {"cleanup.policy": "compact"})
    looking.step()
    assert looking.newest.overview.topics[0].policy == "compact"
    assert looking.shown_configs("orders")["cleanup.policy"] == "compact"


def test_metadata_that_cannot_be_read_leaves_the_folders(store: Store, clock: Clock, tmp_path: Path) -> None:
    append(store)
    copy = copied(store, tmp_path)
    (log,) = (copy / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(b"\xff" * 500)
    (copy / "meta.properties").write_bytes(b"\0\xff\xfe")
    (copy / "cleaner-offset-checkpoint").write_bytes(b"\xff\xff")
    looking = DirectorySnapshots(str(copy), BrokerConfig(), clock)
    looking.step()
    assert [(topic.name, topic.records) for topic in looking.newest.overview.topics] == [("orders", 10)]


def test_a_history_stays_bounded_and_keeps_its_first_sample() -> None:
    history: History[int] = History()
    for number in range(10 * MOST_SAMPLES):
        history.add(number)
    kept = history.all()
    assert len(kept) <= MOST_SAMPLES
    assert kept[0] == 0
    assert kept[-MOST_SAMPLES // 2 :] == tuple(range(10 * MOST_SAMPLES - MOST_SAMPLES // 2, 10 * MOST_SAMPLES))
    assert list(kept) == sorted(set(kept))


def test_a_history_of_sizes_shows_steps_as_steps() -> None:
    history = SizeHistory()
    for at_ms, size in ((1, 10), (2, 10), (3, 10), (4, 20), (5, 20)):
        history.add(at_ms, size, 0, size)
    assert [(sample.at_ms, sample.size_bytes) for sample in history.all()] == [(1, 10), (3, 10), (4, 20), (5, 20)]


def test_a_history_of_sizes_stays_bounded() -> None:
    history = SizeHistory()
    for at_ms in range(10_000):
        history.add(at_ms, at_ms, 0, at_ms)
    samples = history.all()
    assert len(samples) < 300
    assert samples[0].at_ms == 0
    assert samples[-1].end_offset == 9_999
    assert [sample.at_ms for sample in samples] == sorted({sample.at_ms for sample in samples})
