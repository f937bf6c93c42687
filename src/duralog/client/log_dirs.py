"""The log directories of a broker: the sizes of its logs, and moves from one directory to another.

DescribeLogDirs and AlterReplicaLogDirs in version 1, the oldest that Kafka 4 speaks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from duralog.client.api import Api
from duralog.client.connection import Place
from duralog.client.wire import WireConnection
from duralog.config.progress import Counted, OnProgress, ignore
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct

_TIMEOUT_SECONDS = 3.0
_POLL_SECONDS = 0.2

_PARTITION = Struct(
    (
        Field("partition", "int32"),
        Field("size_bytes", "int64"),
        Field("offset_lag", "int64"),
        Field("is_future", "boolean"),
    )
)
_TOPIC = Struct((Field("name", "string"), Field("partitions", ArrayOf(_PARTITION))))
_DIRECTORY = Struct((Field("error_code", "int16"), Field("path", "string"), Field("topics", ArrayOf(_TOPIC))))
_ASKED = Struct((Field("name", "string"), Field("partitions", ArrayOf("int32"))))
_DESCRIBE = Api(
    key=35,
    version=1,
    request=Message(
        "DescribeLogDirsRequest",
        (Field("topics", ArrayOf(_ASKED), nullable=True),),
        last_version=1,
        flexible_since=None,
    ),
    response=Message(
        "DescribeLogDirsResponse",
        (Field("throttle_ms", "int32"), Field("directories", ArrayOf(_DIRECTORY))),
        last_version=1,
        flexible_since=None,
    ),
)


def log_dir_sizes(host: str, port: int) -> dict[Place, int]:
    """The bytes of each partition that a broker has. Raises `DuralogError` if the broker does not answer."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with WireConnection(address, connect_seconds=_TIMEOUT_SECONDS, response_seconds=_TIMEOUT_SECONDS) as connection:
        directories = connection.ask(_DESCRIBE, {"topics": None})["directories"]
    return {
        (topic["name"], partition["partition"]): partition["size_bytes"]
        for directory in directories
        if not directory["error_code"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
        if not partition["is_future"]
    }


_MOVED = Struct((Field("partition", "int32"), Field("error_code", "int16")))
_ALTER = Api(
    key=34,
    version=1,
    request=Message(
        "AlterReplicaLogDirsRequest",
        (Field("dirs", ArrayOf(Struct((Field("path", "string"), Field("topics", ArrayOf(_ASKED)))))),),
        last_version=1,
        flexible_since=None,
    ),
    response=Message(
        "AlterReplicaLogDirsResponse",
        (
            Field("throttle_ms", "int32"),
            Field("results", ArrayOf(Struct((Field("topic", "string"), Field("partitions", ArrayOf(_MOVED)))))),
        ),
        last_version=1,
        flexible_since=None,
    ),
)
_REASONS = {
    3: "there is no such partition",
    6: "the partition is not on this broker",
    9: "the partition is not on this broker",
    31: "it is not allowed: the log-in needs Alter on the cluster",
    56: "the partition or the directory is offline",
    57: "the broker has no such log directory: duralog config get shows its log.dirs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A partition in a log directory of a broker."""

    directory: str
    size_bytes: int
    offset_lag: int
    is_future: bool
    """A copy in progress, which moves the partition here."""


def move_partition(address: str, topic: str, partition: int, directory: str, on_progress: OnProgress = ignore) -> None:
    """Move a partition to another log directory of its broker, and return when the move is complete."""
    with WireConnection(address) as connection:
        asked = {"path": directory, "topics": [{"name": topic, "partitions": [partition]}]}
        results = connection.ask(_ALTER, {"dirs": [asked]})["results"]
        for code in (each["error_code"] for result in results for each in result["partitions"]):
            if code:
                reason = _REASONS.get(code, f"error {code}")
                raise connection.error(f"{topic}-{partition} cannot move to {directory}: {reason}")
        while True:
            replicas = _replicas(connection, topic, partition)
            future = next((each for each in replicas if each.is_future), None)
            if future is None:
                break
            size_bytes = max((each.size_bytes for each in replicas if not each.is_future), default=None)
            on_progress(Counted(label=f"{topic}-{partition}", done=future.size_bytes, total=size_bytes))
            time.sleep(_POLL_SECONDS)
        if [each.directory for each in replicas] != [directory]:
            where = ", ".join(each.directory for each in replicas) or "an offline directory"
            raise connection.error(f"{topic}-{partition} has not moved, it is in {where}: see the log of the broker")


def _replicas(connection: WireConnection, topic: str, partition: int) -> list[Replica]:
    asked = [{"name": topic, "partitions": [partition]}]
    return [
        Replica(
            directory=directory["path"],
            size_bytes=found["size_bytes"],
            offset_lag=found["offset_lag"],
            is_future=found["is_future"],
        )
        for directory in connection.ask(_DESCRIBE, {"topics": asked})["directories"]
        for described in directory["topics"]
        for found in described["partitions"]
        if (described["name"], found["partition"]) == (topic, partition)
    ]
