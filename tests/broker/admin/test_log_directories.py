"""A broker with several log directories: DescribeLogDirs, AlterReplicaLogDirs, and a disk that fails."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog.broker.broker import Broker
from duralog.command_line import app
from duralog.config import BrokerConfig
from duralog.errors import StorageError
from duralog.storage.disk.file_system import LocalFileSystem
from tests.support.broker.admin_desk import DESCRIBE_LOG_DIRS, append, make
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

ALTER_REPLICA_LOG_DIRS, METADATA = 34, 3
STORAGE_ERROR, NO_SUCH_DIRECTORY, UNKNOWN, NO_LEADER = 56, 57, 3, 5
NOW = 1_700_000_000_000


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.fixture
def broker(disks: list[str]) -> Iterator[Broker]:
    config = BrokerConfig.of({"log.retention.ms": -1, "cordoned.log.dirs": ""})
    with Broker(disks, config=config) as broker:
        yield broker.start()


def described(client: RawClient, topics: dict[str, list[int]] | None = None) -> dict[str, Any]:
    asked = None if topics is None else [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    return {each.log_dir: each for each in client.ask(DESCRIBE_LOG_DIRS, 5, {"topics": asked}).results}


def partitions(directory: Any) -> dict[tuple[str, int], tuple[int, bool]]:
    return {
        (topic.name, each.partition_index): (each.offset_lag, each.is_future_key)
        for topic in directory.topics
        for each in topic.partitions
    }


def move(client: RawClient, path: str, topic: str, *numbers: int) -> dict[int, int]:
    asked = [{"path": path, "topics": [{"name": topic, "partitions": list(numbers)}]}]
    (result,) = client.ask(ALTER_REPLICA_LOG_DIRS, 2, {"dirs": asked}).results
    return {each.partition_index: each.error_code for each in result.partitions}


def test_the_directories_and_what_is_in_them(client: RawClient, broker: Broker, disks: list[str]) -> None:
    make(client, "t", 3)
    append(broker, "t", 0, [NOW] * 10)
    found = described(client)
    assert list(found) == disks
    assert {path: set(partitions(each)) for path, each in found.items()} == {
        disks[0]: {("t", 0), ("t", 2)},
        disks[1]: {("t", 1)},
    }
    assert all(each.error_code == 0 and each.total_bytes >= each.usable_bytes > 0 for each in found.values())
    assert partitions(described(client, {"t": [1, 9], "nope": [0]})[disks[1]]) == {("t", 1): (0, False)}
    assert broker.store.given_config is not None


def test_a_partition_moves_while_it_is_served(client: RawClient, broker: Broker, disks: list[str]) -> None:
    make(client, "t", 2)
    append(broker, "t", 0, [NOW] * 10)
    assert move(client, disks[1], "t", 0, 9) == {0: 0, 9: UNKNOWN}
    wait_until(lambda: set(partitions(described(client)[disks[1]])) == {("t", 0), ("t", 1)})
    wait_until(lambda: partitions(described(client)[disks[0]]) == {})
    append(broker, "t", 0, [NOW])
    assert broker.store.partition("t", 0).end_offset == 11
    assert move(client, disks[1], "t", 0) == {0: 0}
    assert move(client, "/elsewhere", "t", 0, 9) == {0: NO_SUCH_DIRECTORY, 9: NO_SUCH_DIRECTORY}
    assert broker.store.background_errors == ()


def test_a_copy_that_is_being_made_is_a_future_replica(
    client: RawClient, broker: Broker, disks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(client, "t", 1)
    append(broker, "t", 0, [NOW] * 10)
    later: list[Any] = []
    monkeypatch.setattr(broker.store._moves, "run_later", later.append)
    assert move(client, disks[1], "t", 0) == {0: 0}
    found = described(client)
    assert partitions(found[disks[0]]) == {("t", 0): (0, False)}
    assert partitions(found[disks[1]]) == {("t", 0): (10, True)}
    assert move(client, disks[0], "t", 0) == {0: 0}
    (waiting,) = later
    assert broker.store._moves.run(waiting) is False
    assert partitions(described(client)[disks[1]]) == {}


def fail(broker: Broker, index: int) -> None:
    store = broker.store
    assert store._failures is not None
    store._failures.report(store.log_directories[index], StorageError("the disk is gone"))


def test_a_disk_that_fails_takes_its_partitions_offline(client: RawClient, broker: Broker, disks: list[str]) -> None:
    make(client, "t", 2)
    fail(broker, 1)
    wait_until(lambda: bool(broker.store.offline))
    found = described(client)
    assert (found[disks[1]].error_code, found[disks[1]].topics, found[disks[1]].total_bytes) == (STORAGE_ERROR, (), -1)
    assert set(partitions(found[disks[0]])) == {("t", 0)}
    (topic,) = client.ask(METADATA, 9, {"topics": [{"name": "t"}]}).topics
    assert [(each.error_code, each.leader_id, tuple(each.offline_replicas)) for each in topic.partitions] == [
        (0, 1, ()),
        (NO_LEADER, -1, (1,)),
    ]
    assert move(client, disks[1], "t", 0) == {0: STORAGE_ERROR}
    assert move(client, disks[0], "t", 1) == {1: STORAGE_ERROR}
    append(broker, "t", 0, [NOW])
    make(client, "next", 2)
    assert set(partitions(described(client)[disks[0]])) == {("t", 0), ("next", 0), ("next", 1)}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_a_full_disk_is_not_a_failed_one(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    make(client, "t", 2)
    append(broker, "t", 0, [NOW])
    append(broker, "t", 1, [NOW])

    def fail(*_: object) -> None:
        raise StorageError("cannot write a checkpoint") from OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(LocalFileSystem, "replace", fail)
        with pytest.raises(StorageError, match="cannot write a checkpoint"):
            broker.store._upkeep.checkpoint_high_watermarks()
    assert broker.store.failure is None
    assert all(each.failure is None for each in broker.store.log_directories)
    broker.store._upkeep.checkpoint_high_watermarks()
    assert move(client, broker.store.paths[1], "t", 0) == {0: 0}
    wait_until(lambda: broker.store.directory_of("t", 0) == broker.store.paths[1])


def test_a_disk_that_takes_no_checkpoint_has_failed(
    client: RawClient, broker: Broker, disks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(client, "t", 2)
    append(broker, "t", 1, [NOW])
    replace = LocalFileSystem.replace

    def fail(files: LocalFileSystem, path: str, data: bytes) -> None:
        if path.startswith(disks[1]):
            raise StorageError("cannot write a checkpoint") from OSError(errno.EIO, os.strerror(errno.EIO))
        replace(files, path, data)

    monkeypatch.setattr(LocalFileSystem, "replace", fail)
    broker.store._upkeep.checkpoint_high_watermarks()
    wait_until(lambda: bool(broker.store.offline))
    assert [each.failure is None for each in broker.store.log_directories] == [True, False]


def test_without_the_directory_of_the_metadata_the_broker_stops(broker: Broker) -> None:
    fail(broker, 0)
    assert broker._thread is not None
    broker._thread.join(60)
    assert not broker._thread.is_alive()
    assert "the directory of the metadata log is offline: the disk is gone" in str(broker.store.failure)


def test_the_command_moves_partitions_of_a_broker(client: RawClient, broker: Broker, disks: list[str]) -> None:
    make(client, "t", 1)
    append(broker, "t", 0, [NOW] * 10)
    called = ["topic", "move", str(broker.address), "--topic", "t", "--partition", "0", "--to"]
    result = CliRunner().invoke(app, [*called, disks[1]])
    assert (result.exit_code, result.stdout) == (0, f"moved t-0 to {disks[1]}\n")
    assert broker.store.directory_of("t", 0) == disks[1]
    result = CliRunner().invoke(app, [*called, "/elsewhere"])
    assert result.exit_code == 1
    assert "t-0 cannot move to /elsewhere: the broker has no such log directory" in result.stderr


def test_the_command_moves_partitions_of_directories(tmp_path: Path) -> None:
    disks = f"{tmp_path}/a,{tmp_path}/b"
    run = CliRunner().invoke
    assert run(app, ["topic", "create", disks, "--topic", "t", "--partitions", "2"]).exit_code == 0
    called = ["topic", "move", disks, "--topic", "t", "--partition", "0", "--json", "--to"]
    result = run(app, [*called, f"{tmp_path}/b"])
    assert json.loads(result.stdout) == {"kind": "moved", "topic": "t", "partition": 0, "directory": f"{tmp_path}/b"}
    assert sorted(path.name for path in (tmp_path / "b").iterdir() if path.is_dir()) == ["t-0", "t-1"]
    assert [path.name for path in (tmp_path / "a").glob("t-0*")] == []
    result = run(app, [*called, str(tmp_path)])
    assert result.exit_code == 1
    assert "is not a log directory of this store" in result.stderr
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={disks}\n")
    listed = run(app, ["topic", "list", f"{tmp_path}/a", "--server-properties", str(properties), "--json"])
    assert json.loads(listed.stdout)["partitions"] == 2
