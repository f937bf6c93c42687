"""Two log directories of one node, opened by duralog and by Kafka in turn: each finds what the other has left."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.errors import StorageError
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.properties import decode_meta_properties
from duralog.storage.partition_moves import PartitionMoves
from duralog.storage.store import Store
from oracle.kafka_process import KafkaProcess, KafkaRefusedError
from oracle.kafka_server import CLUSTER_ID, KafkaServer, free_ports, server_settings, write_properties
from tests.support.broker.raw_client import RawClient
from tests.support.interop.served_directory import ServedDirectory
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


@pytest.fixture(scope="module")
def made(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Formatted by Kafka's own tool, with three partitions, each with one record of Kafka's."""
    folder = tmp_path_factory.mktemp("made")
    paths = [folder / "a", folder / "b"]
    with tempfile.TemporaryDirectory(prefix="duralog-kafka-") as work:
        properties = Path(work) / "server.properties"
        write_properties(properties, server_settings(paths[0], 1, *free_ports(2)) | log_dirs(paths))
        kafka.ask(command="format", arguments=["format", "-t", CLUSTER_ID, "-c", str(properties)])
    with KafkaServer(kafka, paths[0], configs=log_dirs(paths)) as server:
        server.create_topic("orders", 3)
        for number in range(3):
            assert server.produce("orders", number, [record(f"kafka {number}")]) == [0]
        assert server.errors == []
    return paths


@pytest.fixture
def disks(made: list[Path], tmp_path: Path) -> list[Path]:
    return [shutil.copytree(disk, tmp_path / disk.name) for disk in made]


def log_dirs(disks: list[Path]) -> dict[str, object]:
    return {"log.dirs": ",".join(map(str, disks)), "log.retention.ms": -1}


def folders(disk: Path) -> list[str]:
    return sorted(path.name for path in disk.iterdir() if path.is_dir() and not path.name.startswith("__"))


def live(disks: list[Path]) -> list[list[str]]:
    return [[name for name in folders(disk) if not name.endswith("-delete")] for disk in disks]


def offsets(disk: Path, name: str) -> set[Any]:
    return set(decode_offset_checkpoint((disk / name).read_bytes()))


def consumed(server: KafkaServer, topic: str, partition: int) -> list[str]:
    return [bytes.fromhex(record["value"]).decode() for record in server.consume(topic, partition)["records"]]


def read(store: Store, topic: str, partition: int) -> list[str]:
    return [(record.value or b"").decode() for record in store.partition(topic, partition).read(0)]


def record(value: str) -> dict[str, str]:
    return {"key": "00", "value": value.encode().hex()}


def answers(address: tuple[str, int], disks: list[Path]) -> list[Any]:
    """What a broker says about its directories: to a move, to a wrong one, and to a question."""
    client = RawClient(*address)
    said: list[Any] = []
    for path, topic, number in (
        (str(disks[1]), "orders", 0),
        (str(disks[1]), "orders", 9),
        (str(disks[1]), "nope", 0),
        ("/elsewhere", "orders", 0),
        ("/elsewhere", "nope", 0),
        ("relative", "orders", 0),
    ):
        asked = [{"path": path, "topics": [{"name": topic, "partitions": [number]}]}]
        (result,) = client.ask(ALTER_REPLICA_LOG_DIRS, 2, {"dirs": asked}).results
        said.append([(result.topic_name, each.partition_index, each.error_code) for each in result.partitions])

    def described() -> list[Any]:
        results = client.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None}).results
        return sorted(
            (
                Path(each.log_dir).name,
                each.error_code,
                each.is_cordoned,
                sorted(
                    (topic.name, part.partition_index, part.partition_size, part.offset_lag, part.is_future_key)
                    for topic in each.topics
                    for part in topic.partitions
                ),
            )
            for each in results
        )

    def has_moved() -> bool:
        return [len(parts) for _, _, _, parts in described()] == [1, 2]

    wait_until(has_moved)
    said.append(described())
    client.close()
    return said


def test_the_directories_go_from_kafka_to_duralog_and_back(kafka: KafkaProcess, disks: list[Path]) -> None:
    ids = [decode_meta_properties((disk / "meta.properties").read_bytes()) for disk in disks]
    assert ids[0].cluster_id == ids[1].cluster_id == CLUSTER_ID
    before = live(disks)
    assert sorted(name for names in before for name in names) == ["orders-0", "orders-1", "orders-2"]
    kept = {(disk, name): offsets(disk, name) for disk in disks for name in CHECKPOINTS}

    with duralog.open(disks, {"log.retention.ms": -1}) as store:
        assert store.offline == {}
        assert [directory.was_clean for directory in store.log_directories] == [True, True]
        topic = store.find_topic("orders")
        assert topic is not None
        for number in range(3):
            assert f"orders-{number}" in folders(Path(store.directory_of("orders", number)))
            home = disks.index(Path(store.directory_of("orders", number)))
            assert topic.directory_ids[number] == ids[home].directory_id
    # Without a change, the checkpoints say the same as Kafka's.
    assert {(disk, name): offsets(disk, name) for disk in disks for name in CHECKPOINTS} == kept
    assert live(disks) == before

    with duralog.open(disks, {"log.retention.ms": -1}) as store:
        source = disks.index(Path(store.directory_of("orders", 0)))
        for number in range(3):
            store.partition("orders", number).append([duralog.Record(value=b"duralog")])
        store.move_partition("orders", 0, disks[1 - source])
        store.partition("orders", 0).append([duralog.Record(value=b"moved")])
        store.create_topic("ours", 2)
        store.partition("ours", 1).append([duralog.Record(value=b"x")])
    left = live(disks)
    assert "orders-0" in left[1 - source]

    with KafkaServer(kafka, disks[0], configs=log_dirs(disks)) as server:
        assert {name: topic["partitions"] for name, topic in server.topics().items()} == {"orders": 3, "ours": 2}
        assert consumed(server, "orders", 0) == ["kafka 0", "duralog", "moved"]
        assert consumed(server, "orders", 2) == ["kafka 2", "duralog"]
        assert consumed(server, "ours", 1) == ["x"]
        server.produce("orders", 0, [record("again")])
        assert server.errors == []
    assert live(disks) == left

    with duralog.open(disks, {"log.retention.ms": -1}) as store:
        assert read(store, "orders", 0) == ["kafka 0", "duralog", "moved", "again"]
        assert store.offline == {}


def test_kafka_completes_a_move_that_was_interrupted(
    kafka: KafkaProcess, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata names the new directory, and the folders are not renamed: what a crash of duralog's leaves."""

    def crash(*_: object) -> None:
        raise StorageError("power is lost")

    with monkeypatch.context() as crashing, duralog.open(disks, {"log.retention.ms": -1}) as store:
        source = disks.index(Path(store.directory_of("orders", 0)))
        crashing.setattr(PartitionMoves, "_rename", crash)
        with pytest.raises(StorageError, match="power is lost"):
            store.move_partition("orders", 0, disks[1 - source])
    assert any(name.endswith("-future") for name in folders(disks[1 - source]))
    ours = [shutil.copytree(disk, disk.with_name(f"{disk.name}-ours")) for disk in disks]
    with duralog.open(ours, {"log.retention.ms": -1}) as store:
        assert Path(store.directory_of("orders", 0)) == ours[1 - source]
        assert read(store, "orders", 0) == ["kafka 0"]
    with KafkaServer(kafka, disks[0], configs=log_dirs(disks)) as server:
        assert consumed(server, "orders", 0) == ["kafka 0"]
        assert server.errors == []
    assert live(disks) == live(ours)
    assert "orders-0" in live(disks)[1 - source]


def test_a_partition_in_two_directories_is_refused_by_both(kafka: KafkaProcess, disks: list[Path]) -> None:
    (first, *_), _ = live(disks)
    shutil.copytree(disks[0] / first, disks[1] / first)
    with pytest.raises(StorageError, match=f"{first} is in two directories, {disks[0]}/.* and {disks[1]}/"):
        duralog.open(disks)
    with KafkaServer(kafka, disks[0], configs=log_dirs(disks)) as server:
        with pytest.raises(KafkaRefusedError):
            server.topics()
        assert f"Duplicate log directories for {first} are found in both" in server.log


def test_both_brokers_answer_alike(kafka: KafkaProcess, disks: list[Path], tmp_path: Path) -> None:
    written = disks
    if "orders-0" in live(disks)[1]:
        disks = disks[::-1]
    ours = [shutil.copytree(disk, tmp_path / "ours" / disk.name) for disk in disks]
    with KafkaServer(kafka, written[0], configs=log_dirs(written)) as server:
        server.topics()
        kafkas = answers(server.address, disks)
        moved = live(disks)
    dirs = sorted(ours)
    properties = log_dirs(dirs)
    with ServedDirectory(dirs[0], configs=properties) as broker:
        assert answers(broker.address, ours) == kafkas
        assert broker.errors == []
    assert live(ours) == moved
