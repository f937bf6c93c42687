"""Changes of access control entries: add one, remove one; and all entries as the page lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from duralog.broker.security.web_users import Role
from duralog.client.acls import AclsDisabled
from duralog.console.changes.change import Preview, WithoutInput
from duralog.console.facts.acls import AclFacts, AclsView
from duralog.errors import DuralogError
from duralog.operations.target import Target
from duralog.storage.metadata.acls import (
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

OPTIONS = {
    "topic": "--topic",
    "group": "--group",
    "transactional_id": "--transactional-id",
    "cluster": "--cluster",
}
"""The types of resources that `duralog acl` names, and its options for them."""
_COLUMNS = ("Permission", "Principal", "Operation", "Resource", "Name", "Pattern", "Host")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAcl(WithoutInput):
    entry: AclFacts
    role: Role = Role.ADMINISTER

    def arguments(self, where: Sequence[str]) -> list[str]:
        host = [] if self.entry.host == WILDCARD else [f"--{self.entry.permission}-host", self.entry.host]
        return ["acl", "add", *where, *_words(self.entry), *host]

    def preview(self, target: Target) -> Preview:
        if _is_there(target, self.entry):
            return Preview(sentence=f"This entry exists: {_sentence(self.entry)}.", has_effect=False)
        return _preview("This entry is added, and takes effect at once:", self.entry)

    def carry_out(self, target: Target) -> str:
        target.acls().add([acl_of(self.entry)])
        return f"Added: {_sentence(self.entry)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAcl(WithoutInput):
    entry: AclFacts
    role: Role = Role.ADMINISTER

    def arguments(self, where: Sequence[str]) -> list[str]:
        # Without a host, the command would remove the entries of all hosts.
        return ["acl", "remove", *where, *_words(self.entry), f"--{self.entry.permission}-host", self.entry.host]

    def preview(self, target: Target) -> Preview:
        if not _is_there(target, self.entry):
            return Preview(sentence=f"This entry does not exist any more: {_sentence(self.entry)}.", has_effect=False)
        return _preview("This entry is removed, which takes effect at once:", self.entry)

    def carry_out(self, target: Target) -> str:
        if not target.acls().remove([AclFilter(*acl_of(self.entry))]):
            raise DuralogError(f"this entry does not exist any more: {_sentence(self.entry)}")
        return f"Removed: {_sentence(self.entry)}."


def acls_view(target: Target) -> AclsView:
    """All entries, in the order of their resources."""
    try:
        found = target.acls().find(AclFilter())
    except AclsDisabled:
        return AclsView(is_disabled=True)
    return AclsView(entries=tuple(_facts(acl) for acl in sorted(found)))


def acl_of(entry: AclFacts) -> Acl:
    return Acl(
        ResourceType[entry.resource_type.upper()],
        entry.resource_name,
        PatternType[entry.pattern.upper()],
        entry.principal,
        entry.host,
        Operation[entry.operation.upper()],
        Permission[entry.permission.upper()],
    )


def _facts(acl: Acl) -> AclFacts:
    return AclFacts(
        permission=_word(Permission, acl.permission_type),
        principal=acl.principal,
        operation=_word(Operation, acl.operation),
        resource_type=_word(ResourceType, acl.resource_type),
        resource_name=acl.resource_name,
        pattern=_word(PatternType, acl.pattern_type),
        host=acl.host,
    )


def _word(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name.lower()
    except ValueError:
        return str(number)


def _words(entry: AclFacts) -> list[str]:
    """The options that name an entry, but the host."""
    option = OPTIONS[entry.resource_type]
    resource = [option] if option == "--cluster" else [option, entry.resource_name]
    pattern = [] if entry.pattern == "literal" else ["--resource-pattern-type", entry.pattern]
    return [*resource, *pattern, "--operation", entry.operation, f"--{entry.permission}-principal", entry.principal]


def _is_there(target: Target, entry: AclFacts) -> bool:
    return bool(target.acls().find(AclFilter(*acl_of(entry))))


def _preview(sentence: str, entry: AclFacts) -> Preview:
    row = (
        entry.permission,
        entry.principal,
        entry.operation,
        entry.resource_type,
        entry.resource_name,
        entry.pattern,
        entry.host,
    )
    return Preview(sentence=sentence, columns=_COLUMNS, rows=(row,))


def _sentence(entry: AclFacts) -> str:
    hosts = "all hosts" if entry.host == WILDCARD else entry.host
    resource = "" if entry.resource_type == "cluster" else f" {entry.pattern} {entry.resource_name}"
    kind = entry.resource_type.replace("_", " ")
    return f"{entry.permission} {entry.principal} {entry.operation} on {kind}{resource} from {hosts}"
