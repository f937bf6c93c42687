"""AlterPartitionReassignments, versions 0 and 1: every partition is on this node, and can only be moved to it."""

from __future__ import annotations

from collections.abc import Sequence

from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request

_DONE = Fault(codes.NONE, None)
_NOTHING_TO_CANCEL = Fault(codes.NO_REASSIGNMENT_IN_PROGRESS, None)


def handle(runtime: Runtime, topics: Topics, request: Request) -> Answer:
    def reassign(topic: str, number: int, replicas: Sequence[int] | None) -> Fault:
        known = topics.by_name(topic)
        if known is None:
            return Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
        if number not in known.partitions:
            return Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{number}.")
        if replicas is None:
            return _NOTHING_TO_CANCEL
        reason = _assignment_fault(replicas, runtime.node.node_id)
        return _DONE if reason is None else Fault(codes.INVALID_REPLICA_ASSIGNMENT, reason)

    responses = [
        {
            "name": topic.name,
            "partitions": [
                _response(each.partition_index, reassign(topic.name, each.partition_index, each.replicas))
                for each in topic.partitions
            ],
        }
        for topic in request.message.topics
    ]
    return {
        "allow_replication_factor_change": _is_change_allowed(request),
        "error_code": codes.NONE,
        # Kafka's own text for an answer about nothing.
        "error_message": None if responses else "",
        "responses": responses,
    }


def _assignment_fault(replicas: Sequence[int], node_id: int) -> str | None:
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    for broker in sorted(replicas):
        if broker != node_id:
            return f"The manual partition assignment includes broker {broker}, but no such broker is registered."
    if len(replicas) > 1:
        return f"The manual partition assignment includes the broker {node_id} more than once."
    return None


def _is_change_allowed(request: Request) -> bool:
    return bool(optional(request.message, "allow_replication_factor_change", True))


def _response(number: int, fault: Fault) -> Fields:
    return {"partition_index": number, "error_code": fault.code, "error_message": fault.message}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {
        "allow_replication_factor_change": _is_change_allowed(request),
        "error_code": error_code,
        "error_message": message,
        "responses": [
            {"name": topic.name, "partitions": [_response(each.partition_index, fault) for each in topic.partitions]}
            for topic in request.message.topics
        ],
    }


API = Api(45, "AlterPartitionReassignments", 0, 1, handle, refuse)
