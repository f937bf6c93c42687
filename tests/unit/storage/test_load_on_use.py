"""A store that loads a partition when it is first used: the others stay as they are, on disk and in the checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog import Record, Store
from duralog.errors import StorageError, TopicExists
from duralog.format.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.partition_loading import PartitionLoader

CHECKPOINTS = RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT


class OpenedFiles(LocalFileSystem):
    """Knows which partitions' files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: set[str] = set()

    def _open(self, path: str, flags: int, operation: str) -> Any:
        self.folders.add(Path(path).parent.name)
        return super()._open(path, flags, operation)


def records(*values: bytes) -> list[Record]:
    return [Record(key=b"k", value=value) for value in values]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    with duralog.open(path) as store:
        store.create_topic("a", 5)
        for number in range(5):
            log = store.partition("a", number)
            log.append(records(b"0", b"1", b"2"))
            log.roll()
            log.append(records(b"3"))
            log.delete_records(before_offset=number // 2)
    return path


def open_on_use(path: Path, files: LocalFileSystem | None = None) -> Store:
    config = duralog.BrokerConfig.of({"log.segment.delete.delay.ms": 0})
    return Store(str(path), config=config, file_system=files, scheduler=Scheduler(threads=0), load_on_use=True)


def checkpoints(path: Path) -> dict[str, dict[TopicPartition, int]]:
    directory = LogDirectory(LocalFileSystem(), str(path))
    return {name: dict(directory.read_checkpoint(name)) for name in CHECKPOINTS}


def values(path: Path, topic: str = "a") -> dict[int, list[bytes | None]]:
    with duralog.open(path, read_only=True) as store:
        return {
            number: [
                record.value
                for record in store.partition(topic, number).read(store.partition(topic, number).start_offset)
            ]
            for number in store.partitions(topic)
        }


def test_only_what_is_used_is_opened(directory: Path) -> None:
    before, files = checkpoints(directory), OpenedFiles()
    with open_on_use(directory, files) as store:
        assert store.logs == {}
        assert store.partitions("a") == [0, 1, 2, 3, 4]
        log = store.partition("a", 3)
        assert store.partition("a", 3) is log
        assert (log.start_offset, log.end_offset) == (1, 4)
        log.append(records(b"4"))
        assert set(store.logs) == {("a", 3)}
    assert {folder for folder in files.folders if folder.startswith("a-")} == {"a-3"}
    assert (directory / CLEAN_SHUTDOWN).exists()
    after = checkpoints(directory)
    assert after[LOG_START_OFFSET_CHECKPOINT] == before[LOG_START_OFFSET_CHECKPOINT]
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        assert after[name] == {**before[name], TopicPartition("a", 3): 5}
    assert values(directory)[3] == [b"1", b"2", b"3", b"4"]


def test_a_directory_that_was_not_closed_is_recovered_as_a_whole(directory: Path, tmp_path: Path) -> None:
    with open_on_use(directory) as store:
        store.partition("a", 2).append(records(b"4"))
        store.partition("a", 2).flush()
        crashed = tmp_path / "crashed"
        shutil.copytree(directory, crashed)
    with (crashed / "a-1" / f"{3:020}.log").open("ab") as file:
        file.write(b"half a batch")
    with open_on_use(crashed) as store:
        assert len(store.logs) == 5
        assert store.partition("a", 2).end_offset == 5
        assert store.partition("a", 1).end_offset == 4
    assert (crashed / CLEAN_SHUTDOWN).exists()
    assert values(crashed) == values(directory)


def test_topics_are_created_changed_and_deleted(directory: Path) -> None:
    with open_on_use(directory) as store:
        store.create_topic("b", 2)
        store.partition("b", 1).append(records(b"new"))
        store.add_partitions("a", 6)
        store.partition("a", 5).append(records(b"6th"))
        with pytest.raises(TopicExists):
            store.create_topic("a", 1)
        assert set(store.logs) == {("a", 5), ("b", 0), ("b", 1)}
        store.alter_topic_config("a", {"max.message.bytes": 1000})
        assert store.partition("a", 0).config.max_message_bytes == 1000
    found = values(directory)
    assert (found[0], found[5], values(directory, "b")[1]) == ([b"0", b"1", b"2", b"3"], [b"6th"], [b"new"])
    with open_on_use(directory) as store:
        store.delete_topic("a")
        store.create_topic("a", 1)
        assert store.partition("a", 0).end_offset == 0
    assert values(directory) == {0: []}
    assert {partition.partition for partition in checkpoints(directory)[RECOVERY_POINT_CHECKPOINT]} == {0, 1}


def test_a_partition_that_cannot_be_loaded_is_offline(directory: Path) -> None:
    before = checkpoints(directory)
    (directory / "a-4" / f"{0:020}.log").unlink()
    (directory / "a-4" / f"{0:020}.log").mkdir()
    with open_on_use(directory) as store:
        for _ in range(2):
            with pytest.raises(StorageError, match=r"a-4 is offline: .*neither a regular file"):
                store.partition("a", 4)
        assert set(store.offline) == {("a", 4)}
        store.partition("a", 0).append(records(b"4"))
    after = checkpoints(directory)
    assert after[RECOVERY_POINT_CHECKPOINT] == {**before[RECOVERY_POINT_CHECKPOINT], TopicPartition("a", 0): 5}
    assert after[LOG_START_OFFSET_CHECKPOINT] == before[LOG_START_OFFSET_CHECKPOINT]


def test_the_cleaners_checkpoint_is_kept_and_corrected(directory: Path) -> None:
    """A log that has lost its end must not count as compacted there when it has grown again."""
    path = directory / CLEANER_OFFSET_CHECKPOINT
    path.write_text("0\n3\na 0 4\na 1 3\na 2 3\n")
    with open_on_use(directory) as store:
        log = store.partition("a", 1)
        log.truncate_to(2)
        log.append(records(b"x", b"y", b"z"))
    assert sorted(path.read_text().splitlines()[2:]) == ["a 0 4", "a 1 0", "a 2 3"]
    path.write_text("0\n2\na 0 400\na 2 3\n")
    with open_on_use(directory) as store:
        store.partition("a", 0).append(records(b"x"))
    assert path.read_text().splitlines()[-1] == "a 2 3"
    assert "a 0 400" not in path.read_text()


def test_a_folder_that_is_left_from_a_deleted_topic(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory / "a-1", tmp_path / "old")
    with duralog.open(directory, {"log.segment.delete.delay.ms": 0}) as store:
        store.delete_topic("a")
        store.create_topic("a", 2)
    shutil.rmtree(directory / "a-1")
    shutil.copytree(tmp_path / "old", directory / "a-1")
    with open_on_use(directory) as store:
        assert store.partition("a", 1).end_offset == 0
        store.partition("a", 1).append(records(b"new"))
    assert values(directory) == {0: [], 1: [b"new"]}


def test_a_partition_whose_load_is_interrupted_stays_unloaded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with open_on_use(directory) as store:
        with monkeypatch.context() as patched:
            patched.setattr(PartitionLoader, "load", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.partition("a", 3)
        log = store.partition("a", 3)
        assert (log.start_offset, log.end_offset) == (1, 4)
    assert values(directory)[3] == [b"1", b"2", b"3"]
