"""DescribeCluster, versions 0 to 2: the nodes that serve clients. Here that is one, which is never fenced."""

from __future__ import annotations

from duralog.broker.runtime import Runtime
from duralog.broker.topics.leadership import ALL_CLUSTER_OPERATIONS, NO_LEADER, NOT_ASKED
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request

_BROKERS = 1
_CONTROLLERS = 2


def handle(runtime: Runtime, request: Request) -> Answer:
    endpoint_type = optional(request.message, "endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        reason = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return refuse(request, codes.MISMATCHED_ENDPOINT_TYPE, reason)
    if endpoint_type != _BROKERS:
        return refuse(request, codes.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    node = request.node or runtime.node
    wants_operations = request.message.include_cluster_authorized_operations
    return {
        "error_code": codes.NONE,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": node.cluster_id,
        "controller_id": node.node_id,
        "brokers": [
            {
                "broker_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_fenced": False,
            }
        ],
        "cluster_authorized_operations": ALL_CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {
        "error_code": error_code,
        "error_message": message,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": NO_LEADER,
        "brokers": [],
        "cluster_authorized_operations": NOT_ASKED,
    }


API = Api(60, "DescribeCluster", 0, 2, handle, refuse)
