"""A disk that refuses while topics change: a change is made or not, and nothing of a deleted topic comes back."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from duralog.config import BrokerConfig
from duralog.errors import StorageError
from duralog.format.record import Record
from duralog.storage.disk.background import Scheduler
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store
from tests.support.faults.crashing_files import START_MS, CrashingFiles

PATH = "/data"
CONFIG = BrokerConfig.of({"log.index.size.max.bytes": 1024, "num.recovery.threads.per.data.dir": 1})
KEPT = [b"x", b"y"]


def open_store(files: CrashingFiles) -> Store:
    scheduler = Scheduler(lambda: START_MS, threads=0)
    return Store(PATH, config=CONFIG, file_system=files, clock=lambda: START_MS, scheduler=scheduler)


def with_a_topic(files: CrashingFiles) -> Store:
    store = open_store(files)
    store.create_topic("a", 2)
    for number in range(2):
        store.partition("a", number).append([Record(value=value) for value in KEPT])
    return store


def values(store: Store, topic: str, partition: int) -> list[bytes | None]:
    return [record.value for record in store.partition(topic, partition).read(0)]


def check_kept(store: Store) -> None:
    assert not store.offline
    for name in store.topics():
        for number in store.partitions(name):
            assert values(store, name, number) == (KEPT if name == "a" and number < 2 else [])


def check_created(store: Store) -> None:
    check_kept(store)
    if "b" not in store.topics():
        store.create_topic("b", 2, {"retention.ms": 77})
    assert store.topics() == ["a", "b"]
    assert (store.partitions("b"), store.topic_overrides("b")) == ([0, 1], {"retention.ms": "77"})


def check_grown(store: Store) -> None:
    check_kept(store)
    assert store.partitions("a") in ([0, 1], [0, 1, 2])


def check_deleted(store: Store) -> None:
    check_kept(store)
    if store.topics():
        store.delete_topic("a")
    store.create_topic("a", 2)
    assert [values(store, "a", number) for number in range(2)] == [[], []]


def check_altered(store: Store) -> None:
    check_kept(store)
    assert store.topic_overrides("a") in ({}, {"retention.ms": "5"})


Act = Callable[[Store], object]


@pytest.mark.parametrize(
    ("act", "check"),
    [
        (lambda store: store.create_topic("b", 2, {"retention.ms": 77}), check_created),
        (lambda store: store.add_partitions("a", 3), check_grown),
        (lambda store: store.delete_topic("a"), check_deleted),
        (lambda store: store.alter_topic_config("a", {"retention.ms": 5}), check_altered),
    ],
    ids=["create", "grow", "delete", "alter"],
)
def test_any_operation_of_a_change_may_fail_once(act: Act, check: Act, randomised: int) -> None:
    """After the error, and for who finds the directory as the error left it."""
    failures = operation = 0
    refused = True
    while refused:
        files = CrashingFiles()
        store = with_a_topic(files)
        files.refuse(errno.EIO, skip=operation)
        try:
            act(store)
        except StorageError:
            failures += 1
        refused = files.has_refused
        files.stop_refusing()
        left = files.after_kill()
        metadata = store.partition("__cluster_metadata", 0)
        assert isinstance(metadata, PartitionLog)
        if not metadata.in_doubt:
            check(store)
        check(open_store(left))
        operation += max(1, 6 // randomised)
    assert failures


def test_a_folder_that_could_not_be_renamed_goes_before_the_next_topic_of_its_name() -> None:
    files = CrashingFiles()
    store = with_a_topic(files)
    files.refuse(errno.EIO, operation="rename", path="/data/a-0")
    with pytest.raises(StorageError, match="/data/a-0: cannot rename"):
        store.delete_topic("a")
    assert [entry.name for entry in files.list(PATH) if entry.name.startswith("a-1")] != ["a-1"]
    store.create_topic("a", 2)
    assert [values(store, "a", number) for number in range(2)] == [[], []]


def test_a_folder_that_could_not_be_renamed_goes_at_the_next_start_though_there_is_a_new_topic_of_its_name() -> None:
    files = CrashingFiles()
    store = with_a_topic(files)
    files.refuse(errno.EIO, operation="rename", path="/data/a-0", times=None)
    for change in (lambda: store.delete_topic("a"), lambda: store.create_topic("a", 2)):
        with pytest.raises(StorageError, match="/data/a-0: cannot rename"):
            change()
    files.stop_refusing()
    again = open_store(files.after_kill())
    assert not again.offline
    assert again.topic_id("a") == store.topic_id("a")
    assert [values(again, "a", number) for number in range(2)] == [[], []]


def test_a_checkpoint_that_could_not_be_written_is_written_before_there_is_a_new_topic_of_the_name() -> None:
    files = CrashingFiles()
    store = with_a_topic(files)
    store.partition("a", 0).delete_records(1)
    store.close()
    store = open_store(files)
    files.refuse(errno.EIO, operation="write", path="checkpoint", times=None)
    with pytest.raises(StorageError, match="checkpoint"):
        store.delete_topic("a")
    files.stop_refusing()
    store.create_topic("a", 1)
    store.partition("a", 0).append([Record(value=b"new")])
    assert values(open_store(files.after_kill()), "a", 0) == [b"new"]
