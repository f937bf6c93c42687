"""Directories that do not fit together: older checkpoints and metadata, topics of one name, damaged epochs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog import Record
from duralog.errors import StorageError
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from duralog.format.properties import encode_partition_metadata
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import random_uuid
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.heal import HealReport, HealRequest, heal_cluster
from duralog.operations.cluster.verify import verify_cluster
from duralog.scanning.cluster.choice import Reason
from duralog.scanning.cluster.cluster import open_cluster
from duralog.storage.repair.repair import lock_for_repair
from tests.support.cluster.made import TOPIC, copy_directory, logs, three_nodes, write_high_watermark
from tests.support.cluster.recorded import consumed, scanned, unpack

FOLDER = f"{TOPIC}-0"
OF_LAST_EPOCH = 12
"""Position of the leader epoch in a batch; its checksum does not cover it."""


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    """Four epochs of 15 offsets each."""
    return three_nodes(tmp_path)


def heal(nodes: list[Path], **options: Any) -> HealReport:
    return heal_cluster(HealRequest(paths=[str(node) for node in nodes], **options))


def epochs_of(node: Path) -> list[EpochStart]:
    return list(decode_leader_epoch_checkpoint((node / FOLDER / LEADER_EPOCH_CHECKPOINT).read_bytes()))


def write_epochs(node: Path, entries: list[EpochStart]) -> None:
    (node / FOLDER / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epoch_checkpoint(entries))


@pytest.mark.parametrize("older", [(0,), (1, 2), (0, 1, 2)])
def test_a_checkpoint_that_was_copied_before_an_election_loses_nothing(
    nodes: list[Path], older: tuple[int, ...]
) -> None:
    """A copy of a live directory takes time: files of the same folder are of different moments."""
    whole = [path.read_bytes() for path in logs(nodes[0])]
    right = epochs_of(nodes[0])
    for number in older:
        write_epochs(nodes[number], right[:2])
    for node in nodes:
        write_high_watermark(node, 30)
    assert len(scanned([str(node) for node in nodes], TOPIC, to_end=True)) == 60
    report = heal(nodes)
    assert report.is_well
    assert not any(copy.plan.quarantined_bytes for copy in report.healed)
    for node in nodes:
        assert [path.read_bytes() for path in logs(node)] == whole
        assert epochs_of(node) == right
    assert verify_cluster(ClusterRequest(paths=[str(node) for node in nodes])).is_sound


@pytest.mark.parametrize("has_metadata", [True, False])
def test_a_damaged_epoch_in_the_last_batch_does_not_win(tmp_path: Path, has_metadata: bool) -> None:
    truth = unpack(tmp_path)
    if not has_metadata:
        for folder in tmp_path.glob("broker-*/*/__cluster_metadata-0"):
            shutil.rmtree(folder)
    (path,) = tmp_path.glob("broker-2/*/again-0/*.log")
    data = bytearray(path.read_bytes())
    data[OF_LAST_EPOCH] ^= 0x40
    path.write_bytes(data)
    paths = f"{tmp_path}/broker-*/data*"
    with open_cluster(paths) as cluster:
        copies = cluster.copies(TopicPartition("again", 0))
        assert [copy.state.last_epoch for copy in copies.copies] == [0, 0]
        assert not has_metadata or copies.chosen.state.node_id == 3
    assert scanned(paths, "again") == consumed(truth, "again-0")
    found = [copy for each in heal_cluster(HealRequest(paths=[paths])).partitions for copy in each.copies]
    (healed,) = [copy for copy in found if copy.partition.topic == "again"]
    assert healed.plan.location.url.startswith(f"{tmp_path}/broker-2/")
    assert scanned(paths, "again") == consumed(truth, "again-0")
    assert path.read_bytes()[OF_LAST_EPOCH] == data[OF_LAST_EPOCH] ^ 0x40


def test_a_damaged_epoch_in_a_checkpoint_does_not_win(nodes: list[Path]) -> None:
    """No checksum covers the file. The batches after it show that it is wrong."""
    checkpoint = nodes[1] / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    whole = checkpoint.read_text()
    expected = scanned([str(node) for node in nodes], TOPIC)
    checkpoint.write_text(whole.replace("3 45", "9 45"))
    assert checkpoint.read_text() != whole
    assert scanned([str(node) for node in nodes], TOPIC) == expected
    before = [[path.read_bytes() for path in logs(node)] for node in nodes]
    report = heal(nodes)
    assert report.is_well
    assert [copy.plan.location.url for copy in report.healed] == [str(nodes[1])]
    assert [[path.read_bytes() for path in logs(node)] for node in nodes] == before
    assert checkpoint.read_text() == whole


def test_all_partitions_of_a_name_are_those_of_one_topic(tmp_path: Path) -> None:
    """The older topic has a partition of which the newer one has no folder here."""
    for name, topic_id, partitions, moment in (("old", random_uuid(), 2, 1_000), ("new", random_uuid(), 1, 2_000)):
        with duralog.open(tmp_path / name) as store:
            store.create_topic(TOPIC, partitions)
            for number in range(partitions):
                store.partition(TOPIC, number).append([Record(value=name.encode(), timestamp_ms=moment)])
        for number in range(partitions):
            metadata = tmp_path / name / f"{TOPIC}-{number}" / "partition.metadata"
            metadata.write_bytes(encode_partition_metadata(topic_id))
    nodes = [
        str(copy_directory(tmp_path / name, tmp_path / f"broker-{name}", node))
        for node, name in ((1, "old"), (2, "new"))
    ]
    assert [value for _, _, value in scanned(nodes, TOPIC, 0)] == [b"new"]
    with pytest.raises(StorageError, match=r"orders-1: no copy can be read: .*belongs to another topic of this name"):
        scanned(nodes, TOPIC, 1)
    with pytest.raises(StorageError, match="orders-1: no copy can be read"):
        duralog.scan(nodes, topics=[TOPIC])


def test_metadata_that_is_older_than_the_logs_places_no_replicas(tmp_path: Path) -> None:
    """Node 1 was killed first: its metadata does not know what became of the replicas."""
    unpack(tmp_path)
    for folder in tmp_path.glob("broker-[23]/*/__cluster_metadata-0"):
        shutil.rmtree(folder)
    (gone,) = tmp_path.glob("broker-1/*/orders-0")
    shutil.rmtree(gone)
    paths = [f"{tmp_path}/broker-*/data*"]
    with open_cluster(paths) as cluster:
        orders = cluster.copies(TopicPartition("orders", 0))
        assert orders.choice.reason is Reason.METADATA_STALE
        assert orders.registration is None
    report = verify_cluster(ClusterRequest(paths=paths))
    (found,) = [each for each in report.partitions if str(each.explained.partition) == "orders-0"]
    assert not found.findings
    heal_cluster(HealRequest(paths=paths))
    assert not gone.exists()


def test_a_folder_of_another_topic_is_set_aside_and_the_replica_made_again(tmp_path: Path) -> None:
    truth = unpack(tmp_path)
    paths = f"{tmp_path}/broker-*/data*"
    (orders,) = tmp_path.glob("broker-2/*/orders-0")
    (expired,) = tmp_path.glob("broker-2/*/expired-0")
    foreign = {path.name: path.read_bytes() for path in expired.glob("*.log")}
    shutil.rmtree(orders)
    shutil.copytree(expired, orders)
    starts = orders.parent / LOG_START_OFFSET_CHECKPOINT
    starts.write_bytes(encode_offset_checkpoint([PartitionOffset("orders", 0, 7), PartitionOffset("kept", 1, 3)]))
    assert scanned(paths, "orders") == consumed(truth, "orders-0")
    report = heal_cluster(HealRequest(paths=[paths], truncate_acknowledged=True))
    assert report.is_well
    (copy,) = [each for each in report.healed if each.set_aside is not None]
    assert (str(copy.partition), copy.plan.node_id) == ("orders-0", 2)
    assert copy.set_aside is not None
    aside = orders.with_name(copy.set_aside)
    assert {path.name: path.read_bytes() for path in aside.glob("*.log")} == foreign
    assert scanned([str(orders.parent)], "orders") == consumed(truth, "orders-0")
    # Where the other topic's log started says nothing about this one.
    assert {(each.topic, each.offset) for each in decode_offset_checkpoint(starts.read_bytes())} == {
        ("orders", 0),
        ("kept", 3),
    }
    (other,) = [each for each in verify_cluster(ClusterRequest(paths=[paths])).findings if each.finding == "stray"]
    assert aside.name in other.text
    # The folder of the deleted topic on node 1 is not that of a replica: it stays where it is.
    assert [path.name for path in tmp_path.glob("broker-1/*/again-0*")] == ["again-0"]


def test_a_replica_in_a_directory_that_was_not_given_is_not_made_again(tmp_path: Path) -> None:
    """Kafka does not start if a partition is in two of its directories."""
    unpack(tmp_path)
    (orders,) = tmp_path.glob("broker-2/*/orders-0")
    paths = [str(path) for path in tmp_path.glob("broker-*/data*") if path != orders.parent]
    report = heal_cluster(HealRequest(paths=paths))
    (healed,) = [each for each in report.partitions if str(each.partition) == "orders-0"]
    assert not [copy for copy in healed.copies if copy.plan.node_id == 2]
    (problem,) = healed.problems
    assert "the replica of node 2 is in a directory that was not given" in problem.text
    assert healed.left == 1
    assert len(list(tmp_path.glob("broker-2/*/orders-0"))) == 1
    report = heal_cluster(HealRequest(paths=[*paths, str(orders.parent)]))
    assert [each.problems for each in report.partitions if str(each.partition) == "orders-0"] == [()]


def test_what_may_be_acknowledged_stays_if_no_high_watermark_is_known(nodes: list[Path]) -> None:
    with duralog.open(nodes[2]) as store:
        log = store.partition(TOPIC, 0)
        log.truncate_to(30)
        log.become_leader(1)
        log.append([Record(value=b"only here")])
    (nodes[2] / HIGH_WATERMARK_CHECKPOINT).unlink()
    before = logs(nodes[2])[-1].read_bytes()
    report = heal(nodes)
    (copy,) = [copy for copy in report.partitions[0].copies if copy.failure]
    assert "only this copy has 1 batch, offsets 30 to 30" in str(copy.failure)
    assert logs(nodes[2])[-1].read_bytes() == before
    assert heal(nodes, truncate_acknowledged=True).is_well


def test_a_chosen_copy_that_contradicts_two_others_is_not_copied_over_them(nodes: list[Path], tmp_path: Path) -> None:
    """The folder of another partition of the topic, with the same epochs and offsets, on the node that counts."""
    with duralog.open(tmp_path / "other") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        for epoch in range(4):
            log.become_leader(epoch)
            for number in range(5):
                log.append(Record(value=b"%d-%d" % (epoch, number)) for _ in range(3))
            if epoch < 3:
                log.roll()
    whole = [path.read_bytes() for path in logs(nodes[1])]
    for path in logs(tmp_path / "other"):
        shutil.copy(path, nodes[0] / FOLDER)
    with open_cluster(nodes) as cluster:
        assert cluster.copies(TopicPartition(TOPIC, 0)).choice.copy == 0
    for options in ({}, {"truncate_acknowledged": True}):
        report = heal(nodes, **options)
        failures = [str(copy.failure) for copy in report.partitions[0].copies]
        assert len(failures) == 2
        assert all("that one may be the folder of another partition" in failure for failure in failures)
        for node in nodes[1:]:
            assert [path.read_bytes() for path in logs(node)] == whole
    shutil.rmtree(nodes[0] / FOLDER)
    assert len(scanned([str(node) for node in nodes], TOPIC)) == 60


def test_a_dry_run_lets_go_of_directories_that_it_may_not_write_to(
    nodes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []

    def lock(directory, *, dry_run):
        found = lock_for_repair(directory, dry_run=dry_run)
        monkeypatch.setattr(found, "release", lambda: released.append(directory.path))
        return found

    for node in nodes:
        (node / ".lock").touch()
    monkeypatch.setattr("duralog.operations.cluster.locked_directories.lock_for_repair", lock)
    monkeypatch.setattr(
        "duralog.operations.cluster.locked_directories.os.access", lambda path, _: path != str(nodes[1])
    )
    heal(nodes, dry_run=True)
    assert sorted(released) == [str(node) for node in nodes]
