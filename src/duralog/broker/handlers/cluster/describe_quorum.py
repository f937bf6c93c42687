"""DescribeQuorum, versions 0 to 2: the quorum of the metadata log is this node.

It has no listener for controllers: its entry among the nodes has none.
"""

from __future__ import annotations

from collections.abc import Callable

from duralog.broker.runtime import Runtime
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.errors import DuralogError
from duralog.format.uuids import ZERO_UUID
from duralog.storage.metadata.folder import METADATA_PARTITION

_NOT_HOSTED = "This server does not host this topic-partition."
_NO_ERROR = ""
"""What Kafka sends as error message if there is no error."""


def handle(runtime: Runtime, request: Request) -> Answer:
    asked = [(each.topic_name, [one.partition_index for one in each.partitions]) for each in request.message.topics]
    if asked != [(METADATA_PARTITION.topic, [METADATA_PARTITION.partition])]:
        return _fields(request, codes.NONE, _NO_ERROR, _not_hosted)
    node_id = runtime.node.node_id
    return {
        **_fields(request, codes.NONE, _NO_ERROR, lambda _: _quorum(runtime)),
        "nodes": [{"node_id": node_id, "listeners": []}],
    }


def _fields(request: Request, error_code: int, message: str | None, describe: Callable[[int], Fields]) -> Fields:
    return {
        "error_code": error_code,
        "error_message": message,
        "topics": [
            {
                "topic_name": topic.topic_name,
                "partitions": [describe(each.partition_index) for each in topic.partitions],
            }
            for topic in request.message.topics
        ],
        "nodes": [],
    }


def _not_hosted(number: int) -> Fields:
    return {
        "partition_index": number,
        "error_code": codes.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": _NOT_HOSTED,
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [],
        "observers": [],
    }


def _quorum(runtime: Runtime) -> Fields:
    end_offset, now = _end_offset(runtime), runtime.clock()
    return {
        "partition_index": METADATA_PARTITION.partition,
        "error_code": codes.NONE,
        "error_message": _NO_ERROR,
        "leader_id": runtime.node.node_id,
        "leader_epoch": runtime.store.metadata_epoch,
        "high_watermark": end_offset,
        "current_voters": [
            {
                "replica_id": runtime.node.node_id,
                "replica_directory_id": ZERO_UUID,
                "log_end_offset": end_offset,
                "last_fetch_timestamp": now,
                "last_caught_up_timestamp": now,
            }
        ],
        "observers": [],
    }


def _end_offset(runtime: Runtime) -> int:
    """0 as long as nothing was written to the metadata log."""
    try:
        return runtime.store.partition(METADATA_PARTITION.topic, METADATA_PARTITION.partition).end_offset
    except DuralogError:
        return 0


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {"error_code": error_code, "error_message": message, "topics": [], "nodes": []}


API = Api(55, "DescribeQuorum", 0, 2, handle, refuse)
