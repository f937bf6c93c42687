"""The access control entries of a log directory, or of a running broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from duralog.storage.metadata.acls import Acl, AclFilter
from duralog.storage.store import Store


class Acls(Protocol):
    def find(self, wanted: AclFilter) -> list[Acl]: ...

    def add(self, acls: Sequence[Acl]) -> None: ...

    def remove(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Returns what was removed."""


class DirectoryAcls:
    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._store.acls if wanted.matches(acl)]

    def add(self, acls: Sequence[Acl]) -> None:
        self._store.create_acls(acls)

    def remove(self, filters: Sequence[AclFilter]) -> list[Acl]:
        return list(dict.fromkeys(acl for found in self._store.delete_acls(filters) for acl in found))
