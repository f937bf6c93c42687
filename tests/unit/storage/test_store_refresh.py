"""A read-only store that is refreshed beside a writer: what becomes visible, what stays, and what is read again."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import duralog
from duralog.errors import StorageError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage import opening
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.held_records import HeldRecords
from duralog.storage.metadata.folder import MetadataFolder
from duralog.storage.store import Store

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Store]:
    with duralog.open(tmp_path / "data", {"log.retention.ms": -1, "log.cleaner.enable": False}) as store:
        store.create_topic("orders", 2)
        yield store


@pytest.fixture
def reader(writer: Store) -> Iterator[Store]:
    with duralog.open(writer.path, read_only=True) as store:
        yield store


def append(store: Store, *values: str, topic: str = "orders") -> None:
    store.partition(topic, 0).append([duralog.Record(value=value.encode()) for value in values])


def values(store: Store, topic: str = "orders") -> list[str]:
    log = store.partition(topic, 0)
    return [(record.value or b"").decode() for record in log.read(log.start_offset)]


def test_new_records_are_seen_after_a_refresh(writer: Store, reader: Store) -> None:
    append(writer, "a")
    assert values(reader) == ["a"]
    append(writer, "b")
    assert values(reader) == ["a"]
    view = reader.refresh().partitions[ORDERS]
    assert (view.end_offset, view.error) == (2, None)
    assert values(reader) == ["a", "b"]
    append(writer, "c")
    reader.refresh()
    assert values(reader) == ["a", "b", "c"]


def test_a_log_that_was_returned_before_stays_as_it_was(writer: Store, reader: Store) -> None:
    append(writer, "a")
    held = reader.partition("orders", 0)
    append(writer, "b")
    reader.refresh()
    assert [record.offset for record in held.read(0)] == [0]
    assert reader.partition("orders", 0).end_offset == 2


def test_what_has_not_changed_is_not_loaded_again(writer: Store, reader: Store) -> None:
    append(writer, "a")
    reader.refresh()
    loaded = reader.partition("orders", 1)
    changed = reader.partition("orders", 0)
    append(writer, "b")
    view = reader.refresh()
    assert reader.partition("orders", 1) is loaded
    assert reader.partition("orders", 0) is not changed
    assert reader.refresh().partitions[ORDERS] is view.partitions[ORDERS]


def test_metadata_is_read_again_only_when_it_changes(
    writer: Store, reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.refresh()
    with monkeypatch.context() as patched:
        patched.setattr(MetadataFolder, "load", lambda _: pytest.fail("the metadata was read again"))
        append(writer, "a")
        reader.refresh()
        assert values(reader) == ["a"]
    writer.alter_topic_config("orders", {"cleanup.policy": "compact"})
    reader.refresh()
    assert reader.topic_config("orders").text("cleanup.policy") == "compact"
    assert reader.partition("orders", 0).config.text("cleanup.policy") == "compact"


def test_topics_come_and_go(writer: Store, reader: Store) -> None:
    writer.create_topic("later", 1)
    append(writer, "x", topic="later")
    assert reader.find_topic("later") is None
    assert TopicPartition("later", 0) in reader.refresh().partitions
    assert values(reader, "later") == ["x"]
    writer.delete_topic("later")
    assert TopicPartition("later", 0) not in reader.refresh().partitions
    assert reader.topics() == ["orders"]
    with pytest.raises(UnknownTopic):
        reader.partition("later", 0)


def test_a_topic_that_was_made_again_is_another_one(writer: Store, reader: Store) -> None:
    append(writer, "old")
    reader.refresh()
    assert values(reader) == ["old"]
    writer.delete_topic("orders")
    writer.create_topic("orders", 1)
    append(writer, "new")
    reader.refresh()
    assert values(reader) == ["new"]
    assert reader.topic_id("orders") == writer.topic_id("orders")


def test_rolled_and_deleted_segments_are_followed(writer: Store, reader: Store) -> None:
    log = writer.partition("orders", 0)
    for value in "abc":
        append(writer, value)
        log.roll()
    assert [segment.base_offset for segment in reader.refresh().partitions[ORDERS].segments] == [0, 1, 2, 3]
    assert values(reader) == ["a", "b", "c"]
    log.delete_segments([0, 1], "a test")
    assert [segment.base_offset for segment in reader.refresh().partitions[ORDERS].segments] == [2, 3]
    assert values(reader) == ["c"]


def test_a_log_start_that_was_raised_is_followed(writer: Store, reader: Store) -> None:
    append(writer, "a", "b", "c")
    reader.refresh()
    assert values(reader) == ["a", "b", "c"]
    writer.partition("orders", 0).delete_records(2)
    writer._upkeep.checkpoint()
    directory = reader.refresh()
    assert directory.start_offset(directory.partitions[ORDERS]) == 2
    assert values(reader) == ["c"]


def test_compaction_is_followed(writer: Store, reader: Store) -> None:
    writer.create_topic("kept", 1, {"cleanup.policy": "compact"})
    log = writer.partition("kept", 0)
    for number in range(5):
        log.append([duralog.Record(key=b"k", value=str(number).encode())])
    log.roll()
    reader.refresh()
    assert values(reader, "kept") == ["0", "1", "2", "3", "4"]
    writer.compact("kept", 0)
    assert reader.refresh().cleaned[TopicPartition("kept", 0)] == 5
    assert values(reader, "kept") == ["4"]


def test_a_directory_that_goes_away_leaves_the_store_as_it_was(writer: Store, tmp_path: Path) -> None:
    append(writer, "a")
    copy = Path(shutil.copytree(writer.path, tmp_path / "copy"))
    with duralog.open(copy, read_only=True) as reader:
        reader.refresh()
        assert values(reader) == ["a"]
        copy.rename(tmp_path / "away")
        with pytest.raises(StorageError, match="cannot list"):
            reader.refresh()
        assert reader.topics() == ["orders"]
        (tmp_path / "away").rename(copy)
        assert reader.refresh().partitions[ORDERS].end_offset == 1


def test_a_directory_that_is_replaced_is_read_again(writer: Store, tmp_path: Path) -> None:
    append(writer, "a")
    copy = Path(shutil.copytree(writer.path, tmp_path / "copy"))
    append(writer, "b")
    newer = Path(shutil.copytree(writer.path, tmp_path / "newer"))
    with duralog.open(copy, read_only=True) as reader:
        reader.refresh()
        assert values(reader) == ["a"]
        copy.rename(tmp_path / "old")
        newer.rename(copy)
        reader.refresh()
        assert values(reader) == ["a", "b"]


def test_topics_that_cannot_be_read_stay_until_they_can(
    writer: Store, reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(writer, "a")
    reader.refresh()
    assert values(reader) == ["a"]
    append(writer, "b")
    writer.create_topic("later", 1)
    Path(writer.path, "photos-2024").mkdir()

    def fail(_: object) -> None:
        raise StorageError("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(opening.Opening, "for_reading", fail)
        directory = reader.refresh()
        assert str(directory.topics_error) == "the disk is away"
        assert TopicPartition("photos", 2024) not in directory.partitions
        assert directory.partitions[ORDERS].end_offset == 2
        assert reader.topics() == ["orders"]
    assert reader.refresh().topics_error is None
    assert reader.topics() == ["later", "orders"]
    assert values(reader) == ["a", "b"]


@pytest.mark.parametrize("method", ["_maintain", "_serve"])
def test_a_refresh_that_fails_midway_is_completed_by_the_next(
    writer: Store, reader: Store, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    reader.refresh()
    writer.create_topic("later", 1)
    append(writer, "x", topic="later")

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Store, method, fail)
        with pytest.raises(MemoryError):
            reader.refresh()
    reader.refresh()
    assert reader.topics() == ["later", "orders"]
    assert values(reader, "later") == ["x"]


def test_no_segment_is_measured_for_retention(writer: Store, reader: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(writer, "a")
    reader.refresh()
    assert values(reader) == ["a"]
    assert reader.partition("orders", 1).end_offset == 0
    monkeypatch.setattr(HeldRecords, "of", lambda *_: pytest.fail("a log was measured"))
    append(writer, "b")
    reader.refresh()
    Path(writer.path, "cleaner-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    reader.refresh()


def test_a_damaged_checkpoint_is_reported_once(writer: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(writer, "a")
    copy = Path(shutil.copytree(writer.path, tmp_path / "copy"))
    with duralog.open(copy, read_only=True) as reader:
        (copy / "cleaner-offset-checkpoint").write_text("nonsense")
        reader.refresh()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "duralog"):
            append(writer, "b")
            log = "orders-0/00000000000000000000.log"
            shutil.copy(Path(writer.path, log), copy / log)
            reader.refresh()
        assert values(reader) == ["a", "b"]
        assert "damaged checkpoint" not in caplog.text


def test_folders_that_are_only_named_like_partitions_are_left_out(writer: Store, reader: Store) -> None:
    Path(writer.path, "photos-2024").mkdir()
    assert {partition.topic for partition in reader.refresh().partitions} == {"orders"}


def test_a_loaded_log_is_closed_after_the_block(writer: Store, reader: Store) -> None:
    append(writer, "a")
    files = len(os.listdir("/proc/self/fd"))
    with reader.loaded("orders", 0) as log:
        assert [record.offset for record in log.read(0)] == [0]
    assert len(os.listdir("/proc/self/fd")) == files
    assert ORDERS not in reader.logs
    with pytest.raises(UnknownTopic), reader.loaded("orders", 7):
        pass


def test_no_file_of_older_metadata_stays_open(writer: Store, reader: Store) -> None:
    gc.collect()  # Files that earlier tests in this process have left.
    files = []
    held = [reader.partition("__cluster_metadata", 0)]
    for retention_ms in range(1000, 1004):
        writer.alter_topic_config("orders", {"retention.ms": retention_ms})
        reader.refresh()
        held.append(reader.partition("__cluster_metadata", 0))
        files.append(len(os.listdir("/proc/self/fd")))
    assert max(files) == files[0]
    metadata_log = held[1]
    assert sum(1 for _ in metadata_log.read(0)) == metadata_log.end_offset


def test_only_a_read_only_store_that_is_open_is_refreshed(writer: Store, reader: Store) -> None:
    with pytest.raises(StorageError, match="open for writing"):
        writer.refresh()
    reader.close()
    with pytest.raises(StorageError, match="closed"):
        reader.refresh()


def test_an_object_store_cannot_be_refreshed(writer: Store) -> None:
    class Remote:
        def __getattr__(self, name: str) -> object:
            return getattr(LocalFileSystem(), name)

    with (
        Store(writer.path, read_only=True, file_system=Remote()) as store,  # type: ignore[arg-type]
        pytest.raises(StorageError, match="only a directory of this machine"),
    ):
        store.refresh()


def test_threads_read_while_the_store_is_refreshed(writer: Store, reader: Store) -> None:
    append(writer, "first")
    is_over = threading.Event()
    errors: list[Exception] = []
    seen: list[int] = []

    def read() -> None:
        while not is_over.is_set():
            try:
                seen.append(len(values(reader)))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(50):
        append(writer, str(number))
        reader.refresh()
    is_over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(values(reader)) == 51
    assert max(seen) <= 51
