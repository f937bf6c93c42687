"""Access control entries in the words of `duralog acl`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFacts:
    """One entry."""

    permission: str
    """`allow` or `deny`."""
    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsView:
    entries: tuple[AclFacts, ...] = ()
    is_disabled: bool = False
    """Whether the broker has no authorizer, and so no entries to ask for."""
