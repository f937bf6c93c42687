"""ListConfigResources, versions 0 and 1: the names of topics, brokers, loggers, configured groups and client metrics.

Version 0 lists client metrics only. duralog collects none: those that Kafka has left in the metadata are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from duralog.broker.configs.resources import LOGGER_RESOURCE
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.storage.metadata.cluster_metadata import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)


def handle(runtime: Runtime, topics: Topics, request: Request) -> Answer:
    node = [str(runtime.node.node_id)]
    names: Mapping[int, Callable[[], Iterable[str]]] = {
        TOPIC_RESOURCE: topics.names,
        BROKER_RESOURCE: lambda: node,
        LOGGER_RESOURCE: lambda: node,
        CLIENT_METRICS_RESOURCE: lambda: runtime.store.configured(CLIENT_METRICS_RESOURCE),
        GROUP_RESOURCE: lambda: runtime.store.configured(GROUP_RESOURCE),
    }
    wanted = optional(request.message, "resource_types", (CLIENT_METRICS_RESOURCE,)) or tuple(names)
    if any(each not in names for each in wanted):
        return refuse(request, codes.UNSUPPORTED_VERSION, None)
    return {
        "error_code": codes.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind} for kind in dict.fromkeys(wanted) for name in names[kind]()
        ],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "config_resources": []}


API = Api(74, "ListConfigResources", 0, 1, handle, refuse)
