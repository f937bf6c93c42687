"""ElectLeaders, versions 0 to 2: no election is needed, since the one replica of a partition leads it.

A partition that could not be loaded has no leader, and none can be elected. Null asks for all partitions: those that
need no election are left out of the answer then, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request

_PREFERRED, _UNCLEAN = 0, 1
_NOT_NEEDED = Fault(codes.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_NOT_LOADED = "the log could not be loaded: see the broker's log"
_NONE_AVAILABLE = {
    _PREFERRED: Fault(codes.PREFERRED_LEADER_NOT_AVAILABLE, _NOT_LOADED),
    _UNCLEAN: Fault(codes.ELIGIBLE_LEADERS_NOT_AVAILABLE, _NOT_LOADED),
}


def handle(topics: Topics, partitions: Partitions, request: Request) -> Answer:
    kind = optional(request.message, "election_type", _PREFERRED)
    if kind not in _NONE_AVAILABLE:
        return refuse(request, codes.INVALID_REQUEST, f"Unknown election type {kind}")

    def elect(topic: str, number: int) -> Fault:
        known = topics.by_name(topic)
        if known is None:
            return Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
        if number not in known.partitions:
            return Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{number}")
        return _NONE_AVAILABLE[kind] if partitions.get(topic, number) is None else _NOT_NEEDED

    asked = request.message.topic_partitions
    if asked is None:
        results = [
            _result(topic.name, ((number, fault) for number, fault in elected if fault is not _NOT_NEEDED))
            for topic in topics.all()
            if (elected := [(number, elect(topic.name, number)) for number in topic.partitions])
        ]
    else:
        results = [
            _result(each.topic, ((number, elect(each.topic, number)) for number in each.partitions)) for each in asked
        ]
    return {"error_code": codes.NONE, "replica_election_results": results}


def _result(topic: str, faults: Iterable[tuple[int, Fault]]) -> Fields:
    return {
        "topic": topic,
        "partition_result": [
            {"partition_id": number, "error_code": fault.code, "error_message": fault.message}
            for number, fault in faults
        ],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {
        "error_code": error_code,
        "replica_election_results": [
            _result(each.topic, ((number, fault) for number in each.partitions))
            for each in request.message.topic_partitions or ()
        ],
    }


API = Api(43, "ElectLeaders", 0, 2, handle, refuse)
