"""MirrorMaker 2 between two clusters, in both directions, in a process of its own.

It copies all topics and the offsets of all groups, and looks for changes of topics, configs and ACLs each second.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from oracle.kafka_jars import mirror_maker_class_path
from oracle.kafka_server import QUICK_TO_START, write_properties
from oracle.server_process import ServerProcess

_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
_REPLACED = "Cannot accept new calls when AdminClient is closing."
"""The reason of an error is in the line after it."""
_INTERNAL_TOPICS = ("checkpoints", "heartbeats", "offset-syncs")
_CONNECT_TOPICS = ("offset", "status", "config")
_EVERY_SECOND = (
    "refresh.topics",
    "refresh.groups",
    "sync.topic.configs",
    "sync.topic.acls",
    "sync.group.offsets",
    "emit.checkpoints",
    "emit.heartbeats",
)


class MirrorMaker(ServerProcess):
    """A running MirrorMaker. Use it as a context manager: the end of the block stops it."""

    def __init__(self, clusters: Mapping[str, str]) -> None:
        """Two clusters: their names, and where they are."""
        super().__init__("MirrorMaker")
        one, other = clusters
        settings: dict[str, object] = {
            "clusters": f"{one},{other}",
            **{f"{name}.bootstrap.servers": bootstrap for name, bootstrap in clusters.items()},
            f"{one}->{other}.enabled": "true",
            f"{other}->{one}.enabled": "true",
            "topics": ".*",
            "groups": ".*",
            "replication.factor": 1,
            "tasks.max": 1,
            "sync.group.offsets.enabled": "true",
            "offset.lag.max": 0,
            "offset.flush.interval.ms": 1000,
            "consumer.auto.offset.reset": "earliest",
        }
        settings |= {f"{topic}.topic.replication.factor": 1 for topic in _INTERNAL_TOPICS}
        settings |= {f"{topic}.storage.replication.factor": 1 for topic in _CONNECT_TOPICS}
        settings |= {f"{task}.interval.seconds": 1 for task in _EVERY_SECOND}
        properties = self.folder / "mm2.properties"
        write_properties(properties, settings)
        self.start([*QUICK_TO_START, "-cp", mirror_maker_class_path(), _MAIN, str(properties)])

    @property
    def errors(self) -> list[str]:
        """What went wrong. Not that a task was replaced while it asked: that depends on no broker."""
        lines = self.log.splitlines()
        told = [line for line, reason in pairwise([*lines, ""]) if _REPLACED not in reason]
        return [line for line in told if line.startswith(("ERROR ", "FATAL "))]
