"""Decides by the access control entries. Kafka's `StandardAuthorizer`.

| question | answer |
|---|---|
| one of `super.users` | allowed, whatever the entries say |
| an entry for the resource denies it | denied |
| an entry for the resource allows it | allowed |
| no entry names the resource, for anyone | `allow.everyone.if.no.acl.found` |
| else | denied |

An entry is for a resource if its name is the literal name of the pattern or begins with the prefix, or if the pattern
is the literal `*`. An entry that allows Read, Write, Delete or Alter also allows Describe, and one that allows
AlterConfigs also allows DescribeConfigs; one that denies them denies nothing else.

Decisions are cached. A change of the entries drops the cache and the index; so does a full cache, since clients choose
the names. Long names are not cached, and neither are those that a client without any entry asks for: it is refused for
every name. Only the loop's thread uses an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import Request
from duralog.storage.metadata.acls import (
    EVERYONE,
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_MOST_DECISIONS = 100_000
_LONGEST_CACHED_NAME = 249
"""The longest name of a topic. A request may have names of 32 KiB."""
_MOST_SENDERS = 10_000
_IMPLYING: dict[int, tuple[int, ...]] = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALL,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL),
}
"""The operations of entries that allow this one, where there are more than itself and ALL."""
_ALL_BITS = {kind: sum(1 << each for each in operations) for kind, operations in OPERATIONS_OF.items()}
_ALLOWED_BITS: dict[int, int] = {
    given: sum(1 << each for each in Operation if given in _IMPLYING.get(each, (each, Operation.ALL)))
    for given in Operation
}
"""The bits of the operations that an entry for one of them allows."""
_ANY_NAME = "hardcode"
"""A name that Kafka asks for to find out whether a principal may use any resource."""

_Names = dict[str, list[Acl]]
_Sender = tuple[str, str, str, int, int]
"""The name and type of a principal, its host, an operation and a resource type."""
_Key = tuple[str, str, str, int, int, str]
"""The same with the name of a resource."""


class _Index:
    """The entries of one resource type by the names of their patterns."""

    __slots__ = ("literal", "prefixed", "sizes")

    def __init__(self) -> None:
        self.literal: _Names = {}
        self.prefixed: _Names = {}
        self.sizes: list[int] = []
        """The lengths of the prefixes."""

    def of(self, name: str) -> Iterator[Acl]:
        """The entries for a resource."""
        yield from self.literal.get(name, ())
        # As in Kafka, the wildcard does not count for names that begin with it: they are searched as prefixes.
        if not name.startswith(WILDCARD):
            yield from self.literal.get(WILDCARD, ())
        for size in self.sizes:
            if size <= len(name):
                yield from self.prefixed.get(name[:size], ())


class Authorizer:
    def __init__(
        self,
        acls: Callable[[], Sequence[Acl]],
        super_users: Iterable[str] = (),
        *,
        allow_if_no_acl: bool = False,
        on_refusal: Callable[[Request, int, int, str], None] | None = None,
    ) -> None:
        """`on_refusal` is called with the request, operation, resource type and name of each refusal."""
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._on_refusal = on_refusal
        self._decisions: dict[_Key, bool] = {}
        self._has_entries: dict[_Sender, bool] = {}
        """Whether the sender may be allowed it for any name."""
        self._indexes: dict[int, _Index] = {}
        self.writable: dict[tuple[int, str, int], set[bytes]] = {}
        """Topics that a sender may write to, as its Produce requests of a version name them: see `remember_writable`.

        By the identity of the principal, its host and the version: Produce is too frequent for more than one lookup.
        """
        self._remembered: list[Principal] = []
        """Those of `writable`, so that no other principal gets the identity of one."""
        self._writable_left = _MOST_DECISIONS
        self.refresh()

    def refresh(self) -> None:
        """The entries have changed."""
        self._decisions = {}
        self._has_entries = {}
        self._indexes = {}
        self._forget_writable()
        for acl in self.acls():
            index = self._indexes.setdefault(acl.resource_type, _Index())
            names = index.literal if acl.pattern_type == PatternType.LITERAL else index.prefixed
            names.setdefault(acl.resource_name, []).append(acl)
        for index in self._indexes.values():
            index.sizes = sorted({len(name) for name in index.prefixed})

    def allows(self, request: Request, operation: int, resource_type: int, name: str) -> bool:
        """Whether the sender of the request may do it. A refusal is reported."""
        principal = request.principal
        key = (principal.name, principal.type, request.client_host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(key)
        if not decision and self._on_refusal is not None:
            self._on_refusal(request, operation, resource_type, name)
        return decision

    def remember_writable(self, request: Request, topics: Collection[bytes]) -> None:
        """The sender may write to these topics: its next requests skip the check, until the entries change."""
        topics = [topic for topic in topics if len(topic) <= _LONGEST_CACHED_NAME]
        self._writable_left -= len(topics) + 1
        if self._writable_left < 0:
            self._forget_writable()
        key = (id(request.principal), request.client_host, request.version)
        if key not in self.writable:
            self.writable[key] = set()
            self._remembered.append(request.principal)
        self.writable[key].update(topics)

    def _forget_writable(self) -> None:
        self.writable.clear()
        self._remembered.clear()
        self._writable_left = _MOST_DECISIONS

    def shows(self, request: Request, operation: int, resource_type: int, name: str) -> bool:
        """The same, for elements that are left out of an answer without an error: nothing is reported."""
        principal = request.principal
        key = (principal.name, principal.type, request.client_host, operation, resource_type, name)
        decision = self._decisions.get(key)
        return self._decide(key) if decision is None else decision

    def allowed_operations(self, request: Request, resource_type: ResourceType, name: str) -> int:
        """The bits of all operations on a resource that the sender may do, by Kafka's numbers.

        All are decided at once and not cached: a request may ask for those of 100,000 names.
        """
        everything = _ALL_BITS[resource_type]
        principal, host = request.principal, request.client_host
        if str(principal) in self._super_users:
            return everything
        principals = _principals(principal)
        index = self._indexes.get(resource_type)
        is_named = False
        allowed = denied = 0
        for acl in () if index is None else index.of(name):
            is_named = True
            if acl.principal not in principals or acl.host not in (WILDCARD, host):
                continue
            if acl.permission_type == Permission.ALLOW:
                allowed |= _ALLOWED_BITS.get(acl.operation, 0)
            else:
                denied |= everything if acl.operation == Operation.ALL else 1 << max(acl.operation, 0)
        if self._allow_if_no_acl and not is_named:
            return everything
        return allowed & everything & ~denied

    def allows_any(self, request: Request, operation: int, resource_type: int) -> bool:
        """Whether the sender may do it with at least one resource of the type. Kafka's `authorizeByResourceType`."""
        if self.shows(request, operation, resource_type, _ANY_NAME):
            return True
        allowed: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        principals = _principals(request.principal)
        for acl in self.acls():
            if (
                acl.resource_type != resource_type
                or acl.principal not in principals
                or acl.host not in (WILDCARD, request.client_host)
                or acl.operation not in (operation, Operation.ALL)
            ):
                continue
            names = allowed if acl.permission_type == Permission.ALLOW else denied
            names[acl.pattern_type].add(acl.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        prefixes = denied[PatternType.PREFIXED]
        names_left = [*(allowed[PatternType.LITERAL] - denied[PatternType.LITERAL]), *allowed[PatternType.PREFIXED]]
        return any(not any(name.startswith(prefix) for prefix in prefixes) for name in names_left)

    def _decide(self, key: _Key) -> bool:
        name, kind, host, operation, resource_type, resource = key
        if not self._may_be_allowed(key[:-1]):
            return False
        decision = self._decided(Principal(name, kind), host, operation, resource_type, resource)
        if len(resource) <= _LONGEST_CACHED_NAME:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions = {}
            self._decisions[key] = decision
        return decision

    def _may_be_allowed(self, sender: _Sender) -> bool:
        """Whether any entry allows it, for whatever name."""
        found = self._has_entries.get(sender)
        if found is None:
            name, kind, host, operation, resource_type = sender
            principal = Principal(name, kind)
            principals, operations = _principals(principal), _IMPLYING.get(operation, (operation, Operation.ALL))
            found = (
                self._allow_if_no_acl
                or str(principal) in self._super_users
                or any(
                    acl.resource_type == resource_type
                    and acl.permission_type == Permission.ALLOW
                    and acl.principal in principals
                    and acl.host in (WILDCARD, host)
                    and acl.operation in operations
                    for acl in self.acls()
                )
            )
            if len(self._has_entries) >= _MOST_SENDERS:
                self._has_entries = {}
            self._has_entries[sender] = found
        return found

    def _decided(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> bool:
        if str(principal) in self._super_users:
            return True
        principals = _principals(principal)
        index = self._indexes.get(resource_type)
        is_named = is_allowed = False
        for acl in () if index is None else index.of(name):
            is_named = True
            if acl.principal not in principals or acl.host not in (WILDCARD, host):
                continue
            if acl.permission_type != Permission.ALLOW:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif acl.operation in _IMPLYING.get(operation, (operation, Operation.ALL)):
                is_allowed = True
        return is_allowed or (self._allow_if_no_acl and not is_named)


def _principals(principal: Principal) -> tuple[str, str]:
    """The principals by which an entry applies to the sender."""
    return str(principal), EVERYONE


def seen_topics(authorizer: Authorizer | None, request: Request) -> Callable[[str], bool] | None:
    """Whether the sender may describe a topic. None: it may describe all."""
    if authorizer is None:
        return None
    return lambda name: authorizer.shows(request, Operation.DESCRIBE, ResourceType.TOPIC, name)


def parse_super_users(text: str) -> list[str]:
    """The principals of `super.users`, which are divided by semicolons: a name may contain commas."""
    return [each.strip() for each in text.split(";") if each.strip()]
