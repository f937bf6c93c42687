"""IncrementalAlterConfigs, versions 0 and 1: set, delete, append to and subtract from configs.

Of topics, of this broker or all brokers, of groups, and the levels of loggers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from duralog.broker.configs.changes import DELETE, DONE, OPERATIONS, Change, ConfigChanges
from duralog.broker.configs.loggers import loggers_fault, set_levels
from duralog.broker.configs.resources import LOGGER_RESOURCE
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.cluster_metadata import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

REPEATED = Fault(codes.INVALID_REQUEST, "Each resource must appear at most once.")
REPEATED_KEYS = Fault(codes.INVALID_REQUEST, "Error due to duplicate config keys")


def handle(runtime: Runtime, topics: Topics, limits: ConnectionLimits, request: Request) -> Answer:
    message = request.message
    if any(
        config.config_operation not in range(len(OPERATIONS)) for each in message.resources for config in each.configs
    ):
        return refuse(request, codes.UNKNOWN_SERVER_ERROR, None)
    counts = Counter((each.resource_type, each.resource_name) for each in message.resources)
    plan = [_plan(runtime, each, counts) for each in message.resources]
    changes = ConfigChanges(runtime, topics, limits, validate_only=message.validate_only)

    def work() -> list[Fault]:
        return [each if isinstance(each, Fault) else _make(changes, each, message.validate_only) for each in plan]

    return answer_changes(topics, changes, message.resources, work)


def answer_changes(
    topics: Topics, changes: ConfigChanges, resources: Sequence[Any], work: Callable[[], list[Fault]]
) -> DelayedAnswer:
    """Run the changes on a worker thread, and answer with the result of each resource."""
    later = DelayedAnswer()

    def then(faults: list[Fault], error: Exception | None) -> None:
        changes.finish()
        if error is not None:
            raise error
        later.answer({"responses": list(map(response, resources, faults))})

    topics.change(work, then, later)
    return later


def _plan(runtime: Runtime, resource: Any, counts: Counter[tuple[int, str]]) -> Change | Fault:
    if counts[resource.resource_type, resource.resource_name] > 1:
        return REPEATED
    if len({each.name for each in resource.configs}) < len(resource.configs):
        return REPEATED_KEYS
    nulls = [each.name for each in resource.configs if each.value is None and each.config_operation != DELETE]
    if nulls:
        return null_values(nulls)
    if resource.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, GROUP_RESOURCE):
        return unknown_type(resource)
    fault = node_fault(runtime, resource)
    if fault is not None:
        return fault
    operations = {each.name: (each.config_operation, each.value) for each in resource.configs}
    return Change(resource.resource_type, resource.resource_name, operations)


def _make(changes: ConfigChanges, change: Change, validate_only: bool) -> Fault:
    if change.resource_type != LOGGER_RESOURCE:
        return changes.make(change)
    fault = loggers_fault(change.operations)
    if fault is None and not validate_only:
        set_levels(change.operations)
    return fault or DONE


def null_values(names: list[str]) -> Fault:
    return Fault(codes.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}")


def unknown_type(resource: Any) -> Fault:
    return Fault(codes.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def node_fault(runtime: Runtime, resource: Any) -> Fault | None:
    """Why the configs or loggers of this broker cannot be changed here."""
    name, node_id = resource.resource_name, runtime.node.node_id
    is_broker = resource.resource_type == BROKER_RESOURCE
    if not is_broker and resource.resource_type != LOGGER_RESOURCE:
        return None
    if name == str(node_id) or (is_broker and name == ""):
        return None
    if not name.removeprefix("-").isdecimal():
        return Fault(codes.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if is_broker:
        return Fault(codes.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    return Fault(codes.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")


def response(resource: Any, fault: Fault) -> Fields:
    return {
        "error_code": fault.code,
        "error_message": fault.message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {"responses": [response(resource, fault) for resource in request.message.resources]}


API = Api(44, "IncrementalAlterConfigs", 0, 1, handle, refuse)
