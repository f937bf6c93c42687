"""AlterConfigs, versions 0 to 2: replaces all configs of a resource by the given ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

from duralog.broker.configs.changes import SET, Change, ConfigChanges
from duralog.broker.handlers.cluster.incremental_alter_configs import (
    REPEATED,
    REPEATED_KEYS,
    answer_changes,
    node_fault,
    null_values,
    refuse,
    unknown_type,
)
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.request import Answer, Api, Request
from duralog.storage.metadata.cluster_metadata import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE


def handle(runtime: Runtime, topics: Topics, limits: ConnectionLimits, request: Request) -> Answer:
    message = request.message
    counts = Counter((each.resource_type, each.resource_name) for each in message.resources)
    plan = [_plan(runtime, each, counts) for each in message.resources]
    changes = ConfigChanges(runtime, topics, limits, validate_only=message.validate_only)

    def work() -> list[Fault]:
        return [each if isinstance(each, Fault) else changes.make(each) for each in plan]

    return answer_changes(topics, changes, message.resources, work)


def _plan(runtime: Runtime, resource: Any, counts: Counter[tuple[int, str]]) -> Change | Fault:
    if counts[resource.resource_type, resource.resource_name] > 1:
        return REPEATED
    if len({each.name for each in resource.configs}) < len(resource.configs):
        return REPEATED_KEYS
    nulls = [each.name for each in resource.configs if each.value is None]
    if nulls:
        return null_values(nulls)
    if resource.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE):
        return unknown_type(resource)
    fault = node_fault(runtime, resource)
    if fault is not None:
        return fault
    operations = {each.name: (SET, each.value) for each in resource.configs}
    return Change(resource.resource_type, resource.resource_name, operations, replaces_all=True)


API = Api(33, "AlterConfigs", 0, 2, handle, refuse)
