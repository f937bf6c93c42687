"""What happens to a real Kafka cluster of three nodes: kills, an unclean election, cleaners, retention, a new topic.

Used to record `tests/golden/cluster.tar.xz`, and by the tests that start such a cluster.
"""

from __future__ import annotations

import time
from pathlib import Path

from oracle.kafka_cluster import KafkaCluster
from oracle.kafka_process import Json

_SEGMENT_BYTES = 4_000
_PATIENCE_SECONDS = 60
ISOLATIONS = ("read_uncommitted", "read_committed")


def live_through(cluster: KafkaCluster) -> Json:
    """The history. Returns what consumers read at its end; the nodes in `running` are alive."""
    cluster.start(*cluster.nodes)
    small = {"internal_segment_bytes": _SEGMENT_BYTES}
    cluster.create_topic("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], **small)
    cluster.create_topic("unclean", [[1, 2]], unclean_leader_election_enable="true", **small)
    cluster.create_topic(
        "users",
        [[3, 1, 2]],
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="1000",
        **small,
    )
    cluster.create_topic("payments", [[2, 1, 3]], **small)
    cluster.create_topic("expired", [[2, 3, 1]], retention_bytes="6000", **small)
    cluster.create_topic("again", [[3, 1]], **small)
    cluster.create_topic("alike", [[3, 1, 2], [3, 2, 1]])
    for partition in range(3):
        cluster.produce("orders", partition, records_of("orders", 0, 60), acks="all")
    for partition in range(2):
        cluster.produce("alike", partition, records_of(f"alike-{partition}", 0, 30), acks="all")
    cluster.produce("unclean", 0, records_of("clean", 0, 40), acks="all")
    cluster.produce("users", 0, records_of("users", 0, 60, keys=7), acks="all")
    cluster.produce("again", 0, records_of("first", 0, 20), acks="all")
    for first in range(0, 120, 30):
        cluster.produce("expired", 0, records_of("expired", first, 30), acks="all")
    for number, end in enumerate(("commit", "abort", "commit")):
        settings = {"transactional_id": f"pay-{number}", "acks": "all"}
        cluster.produce("payments", 0, records_of(end, 10 * number, 10), transaction=end, **settings)

    # Node 2 is lost. Node 1 alone writes what node 2 never gets.
    cluster.kill(2)
    cluster.wait_for_partition("unclean", 0, lambda leader, isr: leader == 1 and isr == {1})
    cluster.produce("unclean", 0, records_of("lost", 40, 30), acks="all")
    for partition in range(3):
        cluster.produce("orders", partition, records_of("without-2", 60, 30), acks="all")
    cluster.produce("users", 0, records_of("users-2", 60, 60, keys=5), acks="all")
    for first in range(120, 240, 30):
        cluster.produce("expired", 0, records_of("expired", first, 30), acks="all")
    # Then node 1 is lost, too, and node 2 comes back: an unclean election.
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_for_partition("unclean", 0, lambda leader, _: leader == 2)
    cluster.produce("unclean", 0, records_of("unclean", 40, 12), acks="1")
    for partition in range(3):
        cluster.wait_for_partition("orders", partition, lambda leader, isr: leader == 3 or 2 in isr)
        cluster.produce("orders", partition, records_of("without-1", 90, 30), acks="all")
    cluster.produce("users", 0, records_of("users-3", 120, 20, keys=5), acks="all")
    for first in range(240, 360, 30):
        cluster.produce("expired", 0, records_of("expired", first, 30), acks="all")
    # Node 1 stays down: its copy of `unclean` has diverged, and its copy of `again` belongs to a deleted topic.
    cluster.delete_topic("again")
    _wait_until_gone(cluster, "again")
    cluster.create_topic("again", [[3, 2]])
    cluster.produce("again", 0, records_of("second", 0, 25), acks="all")
    settings = {"transactional_id": "pay-3", "acks": "all"}
    cluster.produce("payments", 0, records_of("late", 30, 10), transaction="commit", **settings)
    read = _settled(cluster)
    described = cluster.tool("TopicCommand", "--describe")
    return {"running": [2, 3], "read": read, "described": described.splitlines()}


def consumed_by_kafka(cluster: KafkaCluster, isolation: str) -> Json:
    """By partition, what Kafka's own consumer reads."""
    named = [("orders", 0), ("orders", 1), ("orders", 2), ("alike", 0), ("alike", 1)]
    named += [(topic, 0) for topic in ("unclean", "users", "payments", "again", "expired")]
    return {f"{topic}-{number}": cluster.consume(topic, number, isolation=isolation) for topic, number in named}


def records_of(name: str, first: int, count: int, keys: int | None = None) -> list[Json]:
    return [
        {
            "key": f"k{number % keys if keys else number}".encode().hex(),
            "value": f"{name}-{number}-{'x' * (number % 50)}".encode().hex(),
        }
        for number in range(first, first + count)
    ]


def folder_of(cluster: KafkaCluster, node: int, partition: str) -> Path:
    (found,) = (path for each in cluster.directories(node) if (path := each / partition).is_dir())
    return found


def _wait_until_gone(cluster: KafkaCluster, topic: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while topic in cluster.tool("TopicCommand", "--list").split():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} was not deleted")
        time.sleep(0.2)


def _settled(cluster: KafkaCluster) -> Json:
    """What consumers read when neither a cleaner nor retention changes it any more."""
    has_begun: dict[str, bool] = {"users": False, "expired": False}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not all(has_begun.values()):
        # A cleaner has removed some, and retention the first segments.
        has_begun["users"] = len(cluster.consume("users", 0)["records"]) < 60
        has_begun["expired"] = cluster.consume("expired", 0)["start"] > 0
        if time.monotonic() > deadline:
            raise TimeoutError(f"cleaners and retention did not run: {has_begun}")
        time.sleep(0.2)
    cluster.alter_topic("users", "min.compaction.lag.ms=100000000000")
    cluster.alter_topic("expired", "retention.bytes=-1")
    before: Json = {}
    while True:
        time.sleep(1)
        found = {isolation: consumed_by_kafka(cluster, isolation) for isolation in ISOLATIONS}
        if found == before:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError("the logs still change")
        before = found
