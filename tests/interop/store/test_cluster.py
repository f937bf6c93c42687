"""A real Kafka cluster of three nodes on six directories, with kills and an unclean election, then without its brokers.

duralog reads what Kafka's own consumer read, also through damage, and heals the copies. Then Kafka starts on them: all
replicas are in sync, nothing is truncated, and consumers read the same records, from healed copies as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.heal import HealReport, HealRequest, heal_cluster
from duralog.operations.cluster.verify import ClusterVerifyReport, CopyFinding, verify_cluster
from oracle.kafka_cluster import KafkaCluster
from oracle.kafka_process import KafkaProcess
from tests.support.cluster.kafka_history import ISOLATIONS, consumed_by_kafka, folder_of, live_through
from tests.support.cluster.made import cut, flip
from tests.support.cluster.recorded import consumed, scanned

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SWAPPED = ("alike-0", "alike-1")


@dataclass(frozen=True)
class Lived:
    cluster: KafkaCluster
    """Nothing runs."""
    truth: dict[str, Any]
    paths: list[str]
    """The six directories."""

    def logs(self, node: int, partition: str) -> list[Path]:
        """The log files that hold batches."""
        found = sorted(folder_of(self.cluster, node, partition).glob("*.log"))
        return [path for path in found if path.stat().st_size]

    def verify(self) -> ClusterVerifyReport:
        return verify_cluster(ClusterRequest(paths=self.paths))

    def heal(self, **options: Any) -> HealReport:
        return heal_cluster(HealRequest(paths=self.paths, **options))


@pytest.fixture(scope="module")
def lived(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    with KafkaCluster(kafka, tmp_path_factory.mktemp("cluster")) as cluster:
        truth = live_through(cluster)
        cluster.kill(*truth["running"])
        yield Lived(cluster, truth, [str(path) for node in cluster.nodes for path in cluster.directories(node)])


def all_partitions(lived: Lived, isolation: str) -> dict[str, list[tuple[int, bytes, bytes]]]:
    found = {}
    for partition in lived.truth["read"][isolation]:
        topic, _, number = partition.rpartition("-")
        found[partition] = scanned(lived.paths, topic, int(number), isolation=isolation)
    return found


def as_consumed(lived: Lived, isolation: str) -> dict[str, list[tuple[int, bytes, bytes]]]:
    return {partition: consumed(lived.truth, partition, isolation) for partition in lived.truth["read"][isolation]}


def plant_damage(lived: Lived) -> set[tuple[str, int | None, str]]:
    """Damage that leaves one good copy of everything. Returns findings: partition, node, kind."""
    for place, node in enumerate((1, 2, 3)):
        # All copies are damaged, each at another place.
        flip(lived.logs(node, "orders-0")[place % 2], 90 + place)
    leader = lived.logs(3, "orders-1")[-1]
    cut(leader, leader.stat().st_size // 2)
    shutil.rmtree(folder_of(lived.cluster, 1, "orders-1"))
    lived.logs(3, "orders-2")[0].unlink()
    lived.logs(2, "orders-2")[1].unlink()
    flip(lived.logs(3, "users-0")[0], 100)
    # Whole folders of two topics: their ids show it.
    payments, expired = (folder_of(lived.cluster, 3, name) for name in ("payments-0", "expired-0"))
    aside = payments.with_name("aside")
    payments.rename(aside)
    expired.rename(payments)
    aside.rename(expired)
    # Log files of two partitions of a topic: nothing shows it but the other copy.
    mine, others = (folder_of(lived.cluster, 2, name) / f"{0:020}.log" for name in SWAPPED)
    data = mine.read_bytes()
    mine.write_bytes(others.read_bytes())
    others.write_bytes(data)
    return {
        ("orders-0", 1, "damage"),
        ("orders-0", 2, "damage"),
        ("orders-0", 3, "damage"),
        ("orders-1", None, "cut"),
        ("orders-1", None, "replica-missing"),
        ("orders-2", None, "cut"),
        ("users-0", 3, "damage"),
        ("payments-0", None, "other-topic"),
        ("expired-0", None, "other-topic"),
        ("alike-0", 2, "divergence"),
        ("alike-1", 2, "divergence"),
        ("unclean-0", 1, "divergence"),
    }


def test_six_directories_are_read_as_kafkas_consumer_read_them(lived: Lived) -> None:
    for isolation in ISOLATIONS:
        assert all_partitions(lived, isolation) == as_consumed(lived, isolation)
    kinds = {each.finding for each in findings_of(lived.verify())}
    # Node 1 led before the unclean election, and has a folder of the deleted topic.
    assert kinds == {"divergence", "other-topic"}


def test_kafka_serves_the_same_records_from_healed_directories(lived: Lived) -> None:
    expected = plant_damage(lived)
    found = lived.verify()
    assert expected <= {
        (str(each.partition), each.node_id, each.finding)
        for partition in found.partitions
        for each in partition.findings
    }
    assert "lost" not in {each.finding for partition in found.partitions for each in partition.findings}
    for isolation in ISOLATIONS:
        assert all_partitions(lived, isolation) == as_consumed(lived, isolation)

    left = [copy for each in lived.heal().partitions for copy in each.copies if copy.failure]
    # What only these copies have was acknowledged: before the unclean election, and of the other partition.
    assert {(str(copy.partition), copy.plan.node_id) for copy in left} == {
        ("unclean-0", 1),
        ("alike-0", 2),
        ("alike-1", 2),
    }
    assert lived.heal(truncate_acknowledged=True).is_well
    assert not lived.heal().healed
    healed = lived.verify()
    assert {each.finding for each in findings_of(healed)} == {"other-topic", "stray"}
    for isolation in ISOLATIONS:
        assert all_partitions(lived, isolation) == as_consumed(lived, isolation)

    cluster = lived.cluster
    before = logs_of(lived)
    assert len(before) > 40
    cluster.start(*cluster.nodes)
    for partition in lived.truth["read"]["read_committed"]:
        topic, _, number = partition.rpartition("-")
        cluster.wait_in_sync(topic, int(number))
    for isolation in ISOLATIONS:
        assert consumed_by_kafka(cluster, isolation) == lived.truth["read"][isolation]
    # Nodes 1 and 2 lead these by preference: what is served now comes from their disks.
    for number in (0, 1):
        cluster.lead("orders", number)
    cluster.wait_for_partition("orders", 0, lambda leader, _: leader == 1)
    cluster.wait_for_partition("orders", 1, lambda leader, _: leader == 2)
    assert consumed_by_kafka(cluster, "read_committed") == lived.truth["read"]["read_committed"]
    cluster.kill(*cluster.nodes)
    # Kafka has truncated and fetched nothing: every log begins as it was healed. Cleaners and retention have run.
    after = logs_of(lived)
    changed = {path.parent.name for path, data in before.items() if not after.get(path, b"").startswith(data)}
    assert changed <= {"expired-0", "users-0"}
    for isolation in ISOLATIONS:
        assert all_partitions(lived, isolation) == as_consumed(lived, isolation)


def findings_of(report: ClusterVerifyReport) -> list[CopyFinding]:
    return [*report.findings, *(each for partition in report.partitions for each in partition.findings)]


def logs_of(lived: Lived) -> dict[Path, bytes]:
    """The log files of replicas, without those of the topic that was deleted."""
    return {
        path: path.read_bytes()
        for node in lived.cluster.nodes
        for partition in lived.truth["read"]["read_committed"]
        if (node, partition) != (1, "again-0") and (node, partition) != (3, "unclean-0")
        for path in lived.logs(node, partition)
    }
