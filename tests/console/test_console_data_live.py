"""A source beside others at work: a store that is written, rolled, compacted and deleted from, and a thousand logs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.console.facts.runs import RunState
from duralog.console.sources.directory.source import DirectorySource
from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.read_only_partitions import ReadOnlyPartitions
from duralog.storage.store import Store
from tests.support.console.console_stores import MANY_PARTITIONS, MANY_SEGMENTS

ROUNDS = 12
SMALL = {"internal.segment.bytes": 16384, "cleanup.policy": "compact", "file.delete.delay.ms": 0}
CONFIG = {
    "log.retention.ms": -1,
    "log.cleaner.enable": False,
    "log.segment.delete.delay.ms": 0,
    "log.index.size.max.bytes": 4096,
}


def work(store: Store, is_over: threading.Event) -> None:
    try:
        change(store)
    finally:
        is_over.set()


def change(store: Store) -> None:
    """All that happens to logs, again and again."""
    for number in range(ROUNDS):
        log = store.partition("kept", 0)
        log.append([duralog.Record(key=b"k%d" % (place % 7), value=bytes(200)) for place in range(20)])
        log.append(
            [duralog.Record(key=b"t", value=b"x")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        log.end_transaction(1, 0, commit=number % 2 == 0)
        if number % 3 == 0:
            log.roll()
            store.compact("kept", 0)
        if number % 4 == 0:
            store.create_topic(f"passing-{number}", 2, SMALL)
            store.partition(f"passing-{number}", 0).append([duralog.Record(key=b"k", value=b"v")] * 5)
        if number % 4 == 3:
            store.delete_topic(f"passing-{number - 3}")


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.mark.usefixtures("quick_disk")
def test_everything_can_be_asked_while_everything_happens(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data", CONFIG) as store:
        store.create_topic("kept", 1, SMALL)
        store.partition("kept", 0).append([duralog.Record(key=b"k", value=b"v")])
        source = DirectorySource(store.path)
        is_over = threading.Event()
        worker = threading.Thread(target=work, args=(store, is_over))
        worker.start()
        ends = [0]
        looks = 0
        while not is_over.is_set() or looks < 5:
            looks += 1
            source.step()
            overview = source.overview()
            assert overview.is_online
            (row,) = source.topic("kept")
            assert row.end_offset is not None
            ends.append(row.end_offset)
            facts = source.partition("kept", 0)
            assert facts.start_offset <= facts.last_stable_offset <= facts.end_offset
            assert [segment.base_offset for segment in facts.segments] == sorted(
                {segment.base_offset for segment in facts.segments}
            )
            for page in (
                source.records("kept", 0),
                source.records("kept", 0, backwards=True),
                source.tail("kept", 0, ends[-2]),
            ):
                offsets = [record.offset for record in page.records]
                assert offsets == sorted(set(offsets))
                assert "Damage" not in str(page.note)
            for topic in overview.topics:
                for read in (source.partition, source.records):
                    try:
                        read(topic.name, 0)
                    except (UnknownTopic, StorageError):
                        # One that is being made has folders before it has logs.
                        assert topic.name != "kept"
        worker.join()
        assert ends == sorted(ends)
        source.step()
        log = store.partition("kept", 0)
        facts = source.partition("kept", 0)
        assert (facts.end_offset, facts.last_stable_offset) == (log.end_offset, log.last_stable_offset)
        assert [segment.base_offset for segment in facts.segments] == [segment.base_offset for segment in log.segments]
        shown = [record.offset for record in source.records("kept", 0, limit=1_000, committed_only=True).records]
        assert shown == [record.offset for record in log.read(log.start_offset, isolation="read_committed")]
        source.close()


@pytest.mark.usefixtures("quick_disk")
def test_a_search_and_a_check_while_the_log_is_compacted(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data", CONFIG) as store:
        store.create_topic("kept", 1, SMALL)
        source = DirectorySource(store.path)
        is_over = threading.Event()
        worker = threading.Thread(target=work, args=(store, is_over))
        worker.start()
        while not is_over.is_set():
            source.step()
            search = source.find_key("kept", 0, b"k1")
            check = source.start_verify("kept", 0)
            search.wait()
            check.wait()
            assert search.progress().state in (RunState.DONE, RunState.STOPPED), search.progress()
            assert check.progress().state is RunState.DONE, check.progress()
            try:
                source.scan_segment("kept", 0, source.partition("kept", 0).segments[0].base_offset)
                source.rehearsal("kept", 0)
            except DuralogError:
                continue  # It may have been compacted away since it was listed.
        worker.join()
        source.close()


def test_a_thousand_partitions_cost_little(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    # A minute after all was made: what has only just changed is looked at twice.
    source = DirectorySource(str(stores["many"]), clock=lambda: wall_clock_ms() + 60_000)
    overview = source.overview()
    assert overview.partitions == sum(topic.partitions for topic in overview.topics) >= MANY_PARTITIONS
    listed: list[object] = []
    list_folder = ReadOnlyPartitions._list

    def count(self: ReadOnlyPartitions, *arguments: Any) -> Any:
        listed.append(arguments[0])
        return list_folder(self, *arguments)

    monkeypatch.setattr(ReadOnlyPartitions, "_list", count)
    for _ in range(3):
        source.step()
    # Some are listed again all the same, not all of them at once.
    assert len(listed) < 3 * MANY_PARTITIONS / 10
    topic = max(overview.topics, key=lambda topic: topic.partitions)
    rows = source.topic(topic.name)
    assert {row.segments for row in rows} == {MANY_SEGMENTS}
    assert all(row.trouble is None for row in rows)
    for row in rows[:: len(rows) // 10]:
        facts = source.partition(row.topic, row.partition)
        assert len(facts.segments) == MANY_SEGMENTS
        assert source.records(row.topic, row.partition, backwards=True).is_at_end
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    source.close()
