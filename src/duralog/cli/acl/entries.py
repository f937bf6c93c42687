"""Converts the options of `duralog acl` to entries and filters, by the rules of `kafka-acls`, and entries to lines and
objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from duralog.cli.voice.failures import WrongUsage
from duralog.storage.metadata.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    acl_fault,
)

_Kind = TypeVar("_Kind", bound=IntEnum)
_Resource = tuple[ResourceType, str]
NAMES = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the options name."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    is_cluster: bool = False
    pattern: str | None = None
    operations: Sequence[str] = ()
    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    denied_hosts: Sequence[str] = ()
    is_producer: bool = False
    is_consumer: bool = False
    is_idempotent: bool = False

    @property
    def resources(self) -> list[_Resource]:
        return [
            *((ResourceType.TOPIC, name) for name in self.topics),
            *((ResourceType.GROUP, name) for name in self.groups),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
            *([(ResourceType.CLUSTER, CLUSTER_NAME)] if self.is_cluster else []),
        ]


def named(kind: type[_Kind], option: str, text: str) -> _Kind:
    """An element of an enumeration: `DescribeConfigs`, `describe_configs` and `describe-configs` are the same."""
    plain = text.replace("-", "").replace("_", "").lower()
    for element in kind:
        if element.name.replace("_", "").lower() == plain and element.name != "UNKNOWN":
            return element
    known = ", ".join(element.name.lower() for element in kind if element.name not in ("UNKNOWN", "ANY"))
    raise WrongUsage(f"{option} {text}: expected one of {known}")


def new_acls(choice: Choice) -> list[Acl]:
    """The entries to add. Raises `WrongUsage` for options that do not go together, and for entries that are invalid."""
    pattern = named(PatternType, "--resource-pattern-type", choice.pattern or "literal")
    permissions = [
        (Permission.ALLOW, principal, host)
        for principal in choice.allowed
        for host in choice.allowed_hosts or (WILDCARD,)
    ] + [
        (Permission.DENY, principal, host) for principal in choice.denied for host in choice.denied_hosts or (WILDCARD,)
    ]
    if not permissions:
        raise WrongUsage("for whom? Give --allow-principal User:NAME or --deny-principal User:NAME")
    acls = [
        Acl(
            kind,
            name,
            PatternType.LITERAL if kind == ResourceType.CLUSTER else pattern,
            principal,
            host,
            operation,
            permission,
        )
        for (kind, name), operation in _wanted(choice)
        for permission, principal, host in permissions
    ]
    for acl in acls:
        fault = acl_fault(acl)
        if fault is not None:
            raise WrongUsage(fault)
    return list(dict.fromkeys(acls))


def _wanted(choice: Choice) -> list[tuple[_Resource, Operation]]:
    resources = choice.resources
    if choice.is_producer or choice.is_consumer:
        return _of_shortcuts(choice)
    if choice.is_idempotent:
        raise WrongUsage("--idempotent goes with --producer")
    if not resources:
        raise WrongUsage("for what? Give --topic, --group, --transactional-id or --cluster")
    operations = [named(Operation, "--operation", text) for text in choice.operations] or [Operation.ALL]
    for operation in operations:
        for kind, _ in resources:
            if operation not in (Operation.ALL, *OPERATIONS_OF[kind]):
                known = ", ".join(each.name.lower() for each in (Operation.ALL, *OPERATIONS_OF[kind]))
                what = kind.name.lower().replace("_", "-")
                raise WrongUsage(
                    f"--operation {operation.name.lower()} is not one of a {what}: expected one of {known}"
                )
    return [(resource, operation) for resource in resources for operation in operations]


def _of_shortcuts(choice: Choice) -> list[tuple[_Resource, Operation]]:
    if choice.operations or choice.denied:
        raise WrongUsage(
            "--producer and --consumer set the operations, and only allow: leave out --operation and --deny-*"
        )
    if not choice.topics:
        raise WrongUsage("--producer and --consumer need --topic")
    if choice.is_consumer and not choice.groups:
        raise WrongUsage("--consumer needs --group")
    if choice.is_cluster or (choice.groups and not choice.is_consumer):
        raise WrongUsage("--cluster, and --group without --consumer, do not go with --producer")
    if choice.transactional_ids and not choice.is_producer:
        raise WrongUsage("--transactional-id goes with --producer")
    wanted: list[tuple[_Resource, Operation]] = []
    of_topics = [Operation.DESCRIBE]
    if choice.is_producer:
        of_topics += [Operation.WRITE, Operation.CREATE]
        ids = [(ResourceType.TRANSACTIONAL_ID, name) for name in choice.transactional_ids]
        wanted += [(each, operation) for each in ids for operation in (Operation.WRITE, Operation.DESCRIBE)]
        if choice.is_idempotent:
            wanted.append(((ResourceType.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE))
    if choice.is_consumer:
        of_topics.append(Operation.READ)
        wanted += [((ResourceType.GROUP, name), Operation.READ) for name in choice.groups]
    return [((ResourceType.TOPIC, name), operation) for name in choice.topics for operation in of_topics] + wanted


def filters_of(choice: Choice, default_pattern: str) -> list[AclFilter]:
    """The filters for a list or a removal: every named resource with every principal and operation."""
    if choice.is_producer or choice.is_consumer:
        return [AclFilter(*acl) for acl in new_acls(choice)]
    pattern = named(PatternType, "--resource-pattern-type", choice.pattern or default_pattern)
    resources: list[tuple[ResourceType, str | None]] = list(choice.resources) or [(ResourceType.ANY, None)]
    operations = [named(Operation, "--operation", text) for text in choice.operations] or [Operation.ANY]
    senders: list[tuple[Permission, str | None, str | None]] = [
        *((Permission.ALLOW, each, host) for each in choice.allowed for host in choice.allowed_hosts or (None,)),
        *((Permission.DENY, each, host) for each in choice.denied for host in choice.denied_hosts or (None,)),
    ] or [(Permission.ANY, None, None)]
    return [
        AclFilter(kind, name, pattern, principal, host, operation, permission)
        for kind, name in resources
        for permission, principal, host in senders
        for operation in operations
    ]


def cells_of(acl: Acl) -> list[str]:
    return [str(value) for value in object_of(acl).values()][1:]


def object_of(acl: Acl) -> dict[str, Any]:
    """An entry in words."""
    return {
        "kind": "acl",
        "resource_type": _word(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _word(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _word(Operation, acl.operation),
        "permission": _word(Permission, acl.permission_type),
    }


def _word(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name.lower()
    except ValueError:
        return str(number)


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    return sorted(acls, key=lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl))
