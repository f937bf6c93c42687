"""A partition whose folder is gone although a checkpoint has records of it: never without a word about them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import duralog
from duralog.errors import StorageError
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three partitions with records and one without, closed cleanly. Folders of two are lost then."""
    path = tmp_path / "data"
    with duralog.open(path) as store:
        store.create_topic("users", 3)
        store.create_topic("empty", 1)
        for number in range(3):
            store.partition("users", number).append([duralog.Record(value=b"v")] * (10 + number))
    shutil.rmtree(path / "users-1")
    shutil.rmtree(path / "empty-0")
    return path


def checkpoint(path: Path) -> dict[str, int]:
    lines = [line.split() for line in (path / HIGH_WATERMARK_CHECKPOINT).read_text().splitlines()[2:]]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in lines}


def commands_store(path: Path, *, load_on_use: bool = False) -> Store:
    return Store(str(path), scheduler=Scheduler(threads=0), load_on_use=load_on_use, keep_lost=True)


def test_a_store_that_serves_makes_it_again_and_logs_what_is_missing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with duralog.open(path) as store:
        assert store.partition("users", 1).end_offset == 0
        assert not store.offline
    (record,) = [record for record in caplog.records if "missing" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        f"users-1: there is no folder {path}/users-1, but replication-offset-checkpoint says that its log reaches"
        " offset 11: up to 11 records are missing. It is made again, empty"
    )


@pytest.mark.parametrize("load_on_use", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_command_does_not_make_it_and_keeps_the_evidence(path: Path, load_on_use: bool, is_clean: bool) -> None:
    before = checkpoint(path)
    if not is_clean:
        (path / ".kafka_cleanshutdown").unlink()
    for _ in range(2):
        with commands_store(path, load_on_use=load_on_use) as store:
            store.create_topic(f"other{len(store.topics())}", 1)
            assert list(map(str, store.offline)) == ["users-1"]
            with pytest.raises(StorageError, match=r"up to 11 records are missing\. Restore the folder"):
                store.partition("users", 1)
            assert store.partition("users", 2).end_offset == 12
    assert not (path / "users-1").exists()
    after = checkpoint(path)
    assert {name: after[name] for name in before if name != "empty-0"} == {
        name: before[name] for name in before if name != "empty-0"
    }


def test_records_below_the_start_of_the_log_are_not_missing(path: Path) -> None:
    with duralog.open(path) as store:
        store.partition("users", 2).delete_records(before_offset=5)
    shutil.rmtree(path / "users-2")
    with commands_store(path) as store:
        assert "reaches offset 12: up to 7 records" in str(store.offline[next(iter(store.offline))])


def test_a_topic_with_a_lost_partition_can_be_deleted_and_made_again(path: Path) -> None:
    with commands_store(path) as store:
        store.delete_topic("users")
        store.create_topic("users", 3)
        assert [store.partition("users", number).end_offset for number in range(3)] == [0, 0, 0]
        assert not store.offline


def test_a_folder_that_comes_back_is_served(path: Path) -> None:
    shutil.copytree(path / "users-2", path / "saved")
    shutil.rmtree(path / "users-2")
    with commands_store(path) as store:
        assert sorted(map(str, store.offline)) == ["users-1", "users-2"]
    (path / "saved").rename(path / "users-2")
    with commands_store(path) as store:
        assert store.partition("users", 2).end_offset == 12


def test_of_many_the_first_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data"
    with duralog.open(path) as store:
        store.create_topic("users", 25)
        for number in range(25):
            store.partition("users", number).append([duralog.Record(value=b"v")])
    for number in range(25):
        shutil.rmtree(path / f"users-{number}")
    with duralog.open(path):
        pass
    told = [record.getMessage() for record in caplog.records if "users" in record.getMessage()]
    assert len([line for line in told if "1 record" in line]) == 20
    assert "5 more partitions lost their records and are made again, empty" in caplog.text
