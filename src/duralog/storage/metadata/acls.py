"""Access control lists by Kafka's names and numbers: one entry, a filter of entries, and what makes an entry invalid.

An entry allows or denies a principal one operation on the resources that a pattern names, from one host or from all.
The cluster metadata keeps entries by id; equal entries exist once. Nothing here decides about access.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
"""As a literal resource name: all resources of the type. As a host: all hosts."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of the resource type CLUSTER."""
EVERYONE = "User:*"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that Kafka asks for on each type of resource."""


class Acl(NamedTuple):
    """One entry. Kafka's `StandardAcl`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """`User:name`; `User:*` for everyone."""
    host: str
    """An address; `*` for all."""
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """Selects entries. Kafka's `AclBindingFilter`: None and ANY match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    """MATCH selects every pattern that the name falls under: literal, `*` and prefixed."""
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission_type: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return name is None or self.pattern_type != PatternType.MATCH or acl.pattern_type in _STORED_PATTERNS
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return acl.pattern_type == PatternType.PREFIXED and name.startswith(acl.resource_name)


_STORED_PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)


class TooManyMatches(ValueError):
    """Filters select more entries than are returned."""


def select_acls(acls: Iterable[Acl], filters: Sequence[AclFilter], most: int | None = None) -> list[list[Acl]]:
    """The entries that each filter selects, as `AclFilter.matches` decides, in one pass over the entries.

    Filters are looked up by the values of the fields that they name: there are few sets of such fields, however many
    filters there are. Raises `TooManyMatches` beyond `most`, an entry counted for each filter that selects it.
    """
    acls = tuple(acls)
    prefixes = {acl.resource_name for acl in acls if acl.pattern_type == PatternType.PREFIXED}
    sizes = sorted({len(prefix) for prefix in prefixes})
    wanted: dict[tuple[int, ...], dict[tuple[int | str | None, ...], list[list[Acl]]]] = {}
    found: list[list[Acl]] = [[] for _ in filters]
    for each, selected in zip(filters, found, strict=True):
        for exact in _exact_filters(each, prefixes, sizes):
            named = tuple(place for place, value in enumerate(exact) if value != _ANYTHING[place])
            key = tuple(exact[place] for place in named)
            wanted.setdefault(named, {}).setdefault(key, []).append(selected)
    count = 0
    for acl in acls:
        for named, keys in wanted.items():
            for selected in keys.get(tuple(acl[place] for place in named), ()):
                selected.append(acl)
                count += 1
        if most is not None and count > most:
            raise TooManyMatches(f"the filters select more than {most} entries")
    return found


def _exact_filters(wanted: AclFilter, prefixes: Set[str], sizes: Sequence[int]) -> Iterable[AclFilter]:
    """Filters without MATCH that select the same, each entry once. `sizes` are the lengths of the prefixes."""
    name = wanted.resource_name
    if wanted.pattern_type != PatternType.MATCH:
        return (wanted,)
    if name is None:
        return (wanted._replace(pattern_type=PatternType.ANY),)
    literals = {name, WILDCARD}
    under = {name[:size] for size in sizes if size <= len(name)} & prefixes
    return (
        *(wanted._replace(resource_name=each, pattern_type=PatternType.LITERAL) for each in literals),
        *(wanted._replace(resource_name=each, pattern_type=PatternType.PREFIXED) for each in under),
    )


_ANYTHING = AclFilter()


def acl_fault(acl: Acl) -> str | None:
    """Why an entry cannot be stored, in Kafka's words; None if it can."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    resource_type = _named(ResourceType, acl.resource_type)
    if resource_type in ("UNKNOWN", "ANY"):
        return f"Invalid resourceType {resource_type}"
    if acl.pattern_type not in _STORED_PATTERNS:
        return f"Invalid patternType {_named(PatternType, acl.pattern_type)}"
    operation = _named(Operation, acl.operation)
    if operation in ("UNKNOWN", "ANY"):
        return f"Invalid operation {operation}"
    if acl.permission_type not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {_named(Permission, acl.permission_type)}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from"
            " the principal name)"
        )
    return None


def filter_fault(wanted: AclFilter) -> str | None:
    """Why a filter is refused, in Kafka's words; None if it is not."""
    if "UNKNOWN" in (_named(ResourceType, wanted.resource_type), _named(PatternType, wanted.pattern_type)):
        return "Unknown patternFilter."
    if "UNKNOWN" in (_named(Operation, wanted.operation), _named(Permission, wanted.permission_type)):
        return "Unknown entryFilter."
    return None


def _named(kind: type[IntEnum], number: int) -> str:
    """As Kafka's `fromCode`: a number that it does not know is UNKNOWN."""
    try:
        return kind(number).name
    except ValueError:
        return "UNKNOWN"
