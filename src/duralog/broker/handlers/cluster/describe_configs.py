"""DescribeConfigs, versions 1 to 4: the configs of topics, of this broker, of all brokers, of loggers and of groups.

There are no subscriptions to client metrics. A request with an unknown resource type is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from duralog.broker.configs.loggers import logger_entries
from duralog.broker.configs.resources import (
    LOGGER_RESOURCE,
    all_brokers_entries,
    broker_entries,
    chosen,
    group_entries,
    topic_entries,
)
from duralog.broker.net.listening import Address
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault, name_fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.config.entries import Entry
from duralog.storage.metadata.cluster_metadata import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from duralog.storage.metadata.topics import Topic

_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an"
    " incompatible broker. See the broker logs for more details."
)


_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
MOST_CONFIGS = 100_000
"""Of one answer. A small request could ask for any number."""
_TOO_MANY = Fault(codes.POLICY_VIOLATION, f"One response has {MOST_CONFIGS} configs at most.")
_AT_ONCE = 10
"""More resources than this are described on a worker thread. Topics are looked up on the event loop before."""


def handle(runtime: Runtime, topics: Topics, addresses: Mapping[str, Address], request: Request) -> Answer:
    message = request.message
    if any(resource.resource_type not in _TYPES for resource in message.resources):
        return refuse(request, codes.INVALID_REQUEST, _MALFORMED)
    with_doc = bool(optional(message, "include_documentation", False))
    names = {each.resource_name for each in message.resources if each.resource_type == TOPIC_RESOURCE}
    known = {name: topic.topic for name in names if (topic := topics.by_name(name)) is not None}

    def describe() -> Fields:
        results: list[Fields] = []
        room = MOST_CONFIGS
        for resource in message.resources:
            entries = _entries(runtime, known, addresses, resource) if room > 0 else _TOO_MANY
            results.append(_result(resource, entries, message.include_synonyms, with_doc))
            room -= len(results[-1]["configs"])
        return {"results": results}

    if len(message.resources) <= _AT_ONCE:
        return describe()
    return runtime.background.answer(describe)


def _entries(
    runtime: Runtime, known: Mapping[str, Topic], addresses: Mapping[str, Address], resource: Any
) -> Iterable[Entry] | Fault:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        if name not in known:
            return name_fault(name) or Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(runtime.store, known[name])
    if resource.resource_type == BROKER_RESOURCE:
        if name == "":
            return all_brokers_entries(runtime.store)
        listeners = ",".join(f"{listener}://{address}" for listener, address in addresses.items())
        return _other_node(runtime, name, "or empty string, but") or broker_entries(runtime.store, listeners)
    if resource.resource_type == LOGGER_RESOURCE:
        if name == "":
            return Fault(codes.INVALID_REQUEST, "Broker id must not be empty")
        return _other_node(runtime, name, "but") or logger_entries()
    if resource.resource_type == GROUP_RESOURCE:
        if name == "":
            return Fault(codes.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(runtime.store, name)
    return Fault(codes.INVALID_REQUEST, _MALFORMED)


def _other_node(runtime: Runtime, name: str, words: str) -> Fault | None:
    node_id = runtime.node.node_id
    if name == str(node_id):
        return None
    if not name.removeprefix("-").isdecimal():
        return Fault(codes.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    return Fault(codes.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} {words} received {name}")


def _result(resource: Any, entries: Iterable[Entry] | Fault, with_synonyms: bool, with_doc: bool) -> Fields:
    if isinstance(entries, Fault):
        return _refused(resource, entries)
    return {
        "error_code": codes.NONE,
        "error_message": "",
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [
            entry.fields(with_synonyms=with_synonyms, with_doc=with_doc)
            for entry in chosen(entries, resource.configuration_keys)
        ],
    }


def _refused(resource: Any, fault: Fault) -> Fields:
    return {
        "error_code": fault.code,
        "error_message": fault.message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {"results": [_refused(resource, fault) for resource in request.message.resources]}


API = Api(32, "DescribeConfigs", 1, 4, handle, refuse)
