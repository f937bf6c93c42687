"""What a Kafka cluster left on six log directories, with kills and an unclean election, against what consumers read."""

from __future__ import annotations

import shutil

import pytest

import duralog
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.verify import verify_cluster
from duralog.operations.restore.report import RestoreRequest
from duralog.operations.restore.restore import restore
from duralog.scanning.cluster.choice import Reason
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.problems import ProblemKind
from tests.support.cluster.recorded import consumed, scanned, unpack

PARTITIONS = ["orders-0", "orders-1", "orders-2", "unclean-0", "users-0", "payments-0", "again-0", "expired-0"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    return folder, unpack(folder)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_six_directories_are_read_as_consumers_read_them(recorded, partition, isolation):
    folder, truth = recorded
    topic, _, number = partition.rpartition("-")
    found = scanned(f"{folder}/broker-*/data*", topic, int(number), isolation=isolation)
    assert found == consumed(truth, partition, isolation)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_without_metadata_the_epochs_decide(recorded, tmp_path, partition):
    folder, truth = recorded
    topic, _, number = partition.rpartition("-")
    directories = []
    for directory in sorted(folder.glob("broker-*/data*")):
        copied = tmp_path / directory.parent.name / directory.name
        kept = [directory / "meta.properties", *directory.glob("*-offset-checkpoint")]
        copied.mkdir(parents=True)
        for path in kept:
            shutil.copy(path, copied)
        if (directory / partition).exists():
            shutil.copytree(directory / partition, copied / partition)
        directories.append(copied)
    with open_cluster(directories) as cluster:
        assert cluster.metadata is None
    assert scanned(directories, topic, int(number)) == consumed(truth, partition)


def test_the_choice_and_its_reasons(recorded):
    folder, _ = recorded
    with open_cluster(f"{folder}/broker-*/data*") as cluster:
        assert cluster.node_ids == {1, 2, 3}
        assert not cluster.problems
        by_name = {str(partition): cluster.copies(partition) for partition in cluster.all_partitions()}
        unclean = by_name["unclean-0"]
        assert unclean.choice.reason is Reason.LEADER
        assert unclean.chosen.state.node_id == 2
        # Node 1 has 70 records, of which Kafka would truncate those after the unclean election.
        assert [(copy.state.node_id, copy.state.end_offset) for copy in unclean.copies] == [(1, 70), (2, 52)]
        assert unclean.choice.agreed == (40, 52)
        (other,) = by_name["again-0"].problems
        assert other.kind is ProblemKind.OTHER_TOPIC
        assert other.directory.startswith(f"{folder}/broker-1/")
        users = by_name["users-0"]
        assert users.is_compacted
        assert users.dense_from == 120
        assert by_name["orders-0"].dense_from == 0


def test_retention_lets_the_first_epoch_start_with_the_log(recorded):
    """So a copy whose files start later has lost some."""
    folder, truth = recorded
    with open_cluster(f"{folder}/broker-*/data*") as cluster:
        found = cluster.copies(TopicPartition("expired", 0))
        assert not found.problems
        starts = {copy.state.node_id: copy.state.start_offset for copy in found.copies}
        assert starts == {1: 0, 2: 180, 3: 180}
        for copy in found.copies:
            assert copy.state.epochs[0].start_offset == copy.state.start_offset == copy.state.log_start_offset
        # This epoch began at offset 120, and 180 is where the log starts now.
        assert [(entry.epoch, entry.start_offset) for entry in found.copies[0].state.epochs] == [(0, 0), (1, 120)]
        assert [(entry.epoch, entry.start_offset) for entry in found.copies[1].state.epochs] == [(1, 180)]
        assert found.choice.start_offset == truth["read"]["read_uncommitted"]["expired-0"]["start"]


def test_the_old_leader_alone_is_read_as_far_as_it_goes(recorded):
    folder, _ = recorded
    found = scanned([f"{folder}/broker-1/data1", f"{folder}/broker-1/data2"], "unclean")
    assert len(found) == 70


def test_metadata_that_is_older_than_the_logs_does_not_decide(tmp_path):
    """Only node 1, which was killed early, has its metadata."""
    truth = unpack(tmp_path)
    for folder in tmp_path.glob("broker-[23]/*/__cluster_metadata-0"):
        shutil.rmtree(folder)
    paths = f"{tmp_path}/broker-*/data*"
    with open_cluster(paths) as cluster:
        assert cluster.copies(TopicPartition("orders", 0)).choice.reason is Reason.METADATA_STALE
    for partition in ("orders-0", "orders-1", "orders-2", "unclean-0", "users-0", "payments-0", "expired-0"):
        topic, _, number = partition.rpartition("-")
        assert scanned(paths, topic, int(number)) == consumed(truth, partition), partition
    report = verify_cluster(ClusterRequest(paths=[paths]))
    (note,) = [note for note in report.notes if note.finding == "metadata-older"]
    assert "give the directory of a controller with newer metadata" in note.text


def test_metadata_that_cannot_be_read_is_reported_and_another_one_counts(tmp_path):
    truth = unpack(tmp_path)
    (damaged,) = tmp_path.glob("broker-3/*/__cluster_metadata-0/00000000000000000000.log")
    data = bytearray(damaged.read_bytes())
    data[200:240] = bytes(40)
    damaged.write_bytes(data)
    with open_cluster(f"{tmp_path}/broker-*/data*") as cluster:
        assert cluster.metadata is not None
        assert cluster.copies(TopicPartition("orders", 0)).choice.reason is Reason.LEADER
        problems = {problem.kind for problem in cluster.problems}
    assert problems <= {ProblemKind.METADATA_UNREADABLE}
    assert scanned(f"{tmp_path}/broker-*/data*", "again") == consumed(truth, "again-0")


def test_a_controllers_directory_may_be_the_only_one_with_metadata(tmp_path):
    truth = unpack(tmp_path)
    (newest,) = tmp_path.glob("broker-3/*/__cluster_metadata-0")
    (tmp_path / "controller").mkdir()
    shutil.copy(newest.parent / "meta.properties", tmp_path / "controller")
    newest.rename(tmp_path / "controller" / newest.name)
    for folder in tmp_path.glob("broker-*/*/__cluster_metadata-0"):
        shutil.rmtree(folder)
    paths = [f"{tmp_path}/broker-*/data*", f"{tmp_path}/controller"]
    with open_cluster(paths) as cluster:
        assert cluster.copies(TopicPartition("unclean", 0)).choice.reason is Reason.LEADER
        assert cluster.copies(TopicPartition("users", 0)).is_compacted
    assert scanned(paths, "unclean") == consumed(truth, "unclean-0")


def test_restored_topics_have_what_consumers_read(recorded, tmp_path):
    """One of the copies of each partition is gone: what is left is restored."""
    folder, truth = recorded
    paths = [f"{folder}/broker-{node}/data*" for node in (2, 3)]
    report = restore(RestoreRequest(paths=paths, target=str(tmp_path / "new")))
    assert report.is_made
    assert [str(found.partition) for found in report.partitions] == sorted(PARTITIONS)
    for partition in PARTITIONS:
        topic, _, number = partition.rpartition("-")
        for isolation in ("read_uncommitted", "read_committed"):
            found = scanned(tmp_path / "new", topic, int(number), isolation=isolation)
            assert found == consumed(truth, partition, isolation)
    kept = {topic.name: topic.configs for topic in report.topics}
    with duralog.open(tmp_path / "new", read_only=True) as store:
        assert {name: store.topic_overrides(name) for name in store.topics()} == kept
    assert kept["users"]["cleanup.policy"] == "compact"
