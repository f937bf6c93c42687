"""Extracts the changes for the audit log from requests and their answers.

Records, committed offsets and the membership of groups are not recorded: they change all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from duralog.broker.audit.recorder import Changed
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Fields
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType

_RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
"""Types of resources with configs."""
_UNKNOWN = "UNKNOWN"
"""Instead of a number that a client made up: failures are counted by type."""
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def _results(resource_type: str, answered: str, name: str) -> Callable[[Any, Fields], Iterator[Changed]]:
    def read(_: Any, answer: Fields) -> Iterator[Changed]:
        for one in answer[answered]:
            yield Changed(resource_type, one[name], one["error_code"])

    return read


def _checked_only(message: Any) -> bool:
    return bool(optional(message, "validate_only", False))


def _created_topics(message: Any, answer: Fields) -> Iterator[Changed]:
    if not _checked_only(message):
        for one in answer["topics"]:
            partitions = one.get("num_partitions", -1)
            yield Changed(
                "TOPIC", one["name"], one["error_code"], None if partitions < 0 else f"{partitions} partitions"
            )


def _deleted_topics(_: Any, answer: Fields) -> Iterator[Changed]:
    for one in answer["responses"]:
        topic_id = one.get("topic_id")
        yield Changed("TOPIC", one["name"], one["error_code"], None if topic_id is None else f"id {topic_id}")


def _created_partitions(message: Any, answer: Fields) -> Iterator[Changed]:
    counts = {topic.name: topic.count for topic in message.topics}
    if not _checked_only(message):
        for one in answer["results"]:
            yield Changed("TOPIC", one["name"], one["error_code"], f"{counts.get(one['name'])} partitions")


def _deleted_records(_: Any, answer: Fields) -> Iterator[Changed]:
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            detail = f"partition {one['partition_index']}, records before {one['low_watermark']}"
            yield Changed("TOPIC", topic["name"], one["error_code"], detail)


def _moved_partitions(message: Any, answer: Fields) -> Iterator[Changed]:
    # Of a partition that is named twice, the last one counts, as in the answer.
    places = {
        (topic.name, number): directory.path
        for directory in message.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    for topic in answer["results"]:
        name = topic["topic_name"]
        for one in topic["partitions"]:
            number = one["partition_index"]
            yield Changed("TOPIC", name, one["error_code"], f"partition {number} to {places.get((name, number))}")


def _altered_configs(message: Any, answer: Fields) -> Iterator[Changed]:
    if _checked_only(message):
        return
    names = {
        (each.resource_type, each.resource_name): ", ".join(config.name for config in each.configs)
        for each in message.resources
    }
    for one in answer["responses"]:
        resource = one["resource_type"], one["resource_name"]
        kind = _RESOURCES.get(one["resource_type"], _UNKNOWN)
        yield Changed(kind, one["resource_name"], one["error_code"], names.get(resource))


def acl_text(acl: Acl) -> str:
    """An entry in one line."""
    permission, operation = _name(Permission, acl.permission_type), _name(Operation, acl.operation)
    pattern = _name(PatternType, acl.pattern_type)
    return f"{permission} {acl.principal} {operation} from {acl.host} on {pattern} {acl.resource_name}"


def _name(kind: Any, number: int, unknown: str | None = None) -> str:
    try:
        return str(kind(number).name)
    except ValueError:
        return unknown or str(number)


def _created_acls(message: Any, answer: Fields) -> Iterator[Changed]:
    for creation, one in zip(message.creations, answer["results"], strict=False):
        pattern_type = optional(creation, "resource_pattern_type", PatternType.LITERAL)
        acl = Acl(
            creation.resource_type,
            creation.resource_name,
            pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        kind = _name(ResourceType, acl.resource_type, _UNKNOWN)
        yield Changed(kind, acl.resource_name, one["error_code"], f"add {acl_text(acl)}")


def _deleted_acls(_: Any, answer: Fields) -> Iterator[Changed]:
    # An entry is answered for each filter that selects it.
    seen: set[Acl] = set()
    for result in answer["filter_results"]:
        if result["error_code"]:
            yield Changed("ACL", None, result["error_code"])
        for one in result["matching_acls"]:
            acl = Acl(
                one["resource_type"],
                one["resource_name"],
                one.get("pattern_type", PatternType.LITERAL),
                one["principal"],
                one["host"],
                one["operation"],
                one["permission_type"],
            )
            if acl in seen:
                continue
            seen.add(acl)
            kind = _name(ResourceType, acl.resource_type, _UNKNOWN)
            yield Changed(kind, acl.resource_name, one["error_code"], f"remove {acl_text(acl)}")


def _deleted_offsets(message: Any, answer: Fields) -> Iterator[Changed]:
    if answer["error_code"]:
        yield Changed("GROUP", message.group_id, answer["error_code"], "offsets")
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            detail = f"offset of {topic['name']}-{one['partition_index']}"
            yield Changed("GROUP", message.group_id, one["error_code"], detail)


def _altered_quotas(message: Any, answer: Fields) -> Iterator[Changed]:
    if _checked_only(message):
        return
    # The answer names each entity once, in an order of its own: one that is asked for twice is refused.
    details = {
        _entity_text({each.entity_type: each.entity_name for each in asked.entity}): ", ".join(
            f"{op.key}={'removed' if op.remove else op.value}" for op in asked.ops
        )
        for asked in message.entries
    }
    for one in answer["entries"]:
        entity = _entity_text({each["entity_type"]: each["entity_name"] for each in one["entity"]})
        yield Changed("QUOTA", entity, one["error_code"], details.get(entity))


def _entity_text(names: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {name or '<default>'}" for kind, name in sorted(names.items()))


def _altered_credentials(message: Any, answer: Fields) -> Iterator[Changed]:
    details: dict[str, list[str]] = {}
    for each in message.deletions:
        details.setdefault(each.name, []).append(f"remove {_SCRAM.get(each.mechanism, each.mechanism)}")
    for each in message.upsertions:
        details.setdefault(each.name, []).append(f"set {_SCRAM.get(each.mechanism, each.mechanism)}")
    for one in answer["results"]:
        yield Changed("USER", one["user"], one["error_code"], ", ".join(details.get(one["user"], ())))


def _whole(resource_type: str) -> Callable[[Any, Fields], Iterator[Changed]]:
    def read(_: Any, answer: Fields) -> Iterator[Changed]:
        yield Changed(resource_type, None, answer.get("error_code", 0))

    return read


CHANGES: Mapping[str, Callable[[Any, Fields], Iterable[Changed]]] = {
    "CreateTopics": _created_topics,
    "DeleteTopics": _deleted_topics,
    "CreatePartitions": _created_partitions,
    "DeleteRecords": _deleted_records,
    "AlterReplicaLogDirs": _moved_partitions,
    "AlterConfigs": _altered_configs,
    "IncrementalAlterConfigs": _altered_configs,
    "CreateAcls": _created_acls,
    "DeleteAcls": _deleted_acls,
    "DeleteGroups": _results("GROUP", "results", "group_id"),
    "OffsetDelete": _deleted_offsets,
    "AlterClientQuotas": _altered_quotas,
    "AlterUserScramCredentials": _altered_credentials,
    "ElectLeaders": _whole("CLUSTER"),
    "AlterPartitionReassignments": _whole("CLUSTER"),
    "UpdateFeatures": _whole("CLUSTER"),
}
"""By the names of the APIs: what a request, and its answer, changed."""
