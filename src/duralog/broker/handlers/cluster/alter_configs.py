"""AlterConfigs, versions 0 to 2: replaces all configs of a resource by the given ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

from duralog.broker.configs.changes import SET, Change, ConfigChanges
from duralog.broker.handlers.cluster.incremental_alter_configs import (
    REPEATED,
    REPEATED_KEYS,
    node_fault,
    null_values,
    refuse,
    response,
    unknown_type,
)
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Request
from duralog.broker.wire.resource_types import BROKER, GROUP, TOPIC


def handle(runtime: Runtime, topics: Topics, limits: ConnectionLimits, request: Request) -> Answer:
    message = request.message
    counts = Counter((each.resource_type, each.resource_name) for each in message.resources)
    plan = [_plan(runtime, each, counts) for each in message.resources]
    changes = ConfigChanges(runtime, topics, limits, validate_only=message.validate_only)
    later = DelayedAnswer()

    def then(faults: list[Fault], error: Exception | None) -> None:
        changes.finish()
        if error is not None:
            raise error
        later.answer({"responses": list(map(response, message.resources, faults))})

    topics.change(lambda: [each if isinstance(each, Fault) else changes.make(each) for each in plan], then, later)
    return later


def _plan(runtime: Runtime, resource: Any, counts: Counter[tuple[int, str]]) -> Change | Fault:
    if counts[resource.resource_type, resource.resource_name] > 1:
        return REPEATED
    if len({each.name for each in resource.configs}) < len(resource.configs):
        return REPEATED_KEYS
    nulls = [each.name for each in resource.configs if each.value is None]
    if nulls:
        return null_values(nulls)
    if resource.resource_type not in (TOPIC, BROKER, GROUP):
        return unknown_type(resource)
    fault = node_fault(runtime, resource)
    if fault is not None:
        return fault
    operations = {each.name: (SET, each.value) for each in resource.configs}
    return Change(resource.resource_type, resource.resource_name, operations, replaces_all=True)


API = Api(33, "AlterConfigs", 0, 2, handle, refuse)
