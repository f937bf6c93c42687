"""Who may do what: the SCRAM users, ACLs and quotas of the old cluster, in the new directory.

They are records of the cluster metadata, and are written as a broker writes them. All of them come, whatever topics are
restored. Passwords are not in them (`duralog.storage.metadata.scram`): users log in with those that they had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from duralog.config.plurals import plural
from duralog.errors import StorageError
from duralog.storage.metadata.acls import Acl
from duralog.storage.metadata.client_quotas import ClientQuotas
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.scram import ScramCredential, ScramUser
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    credentials: Mapping[ScramUser, ScramCredential] = field(repr=False)
    acls: frozenset[Acl]
    quotas: ClientQuotas

    @property
    def users(self) -> int:
        return len({name for name, _ in self.credentials})

    def __str__(self) -> str:
        return f"{plural(self.users, 'user')}, {plural(len(self.acls), 'ACL')} and {plural(len(self.quotas), 'quota')}"

    def to_dict(self) -> dict[str, Any]:
        return {"users": self.users, "acls": len(self.acls), "quotas": len(self.quotas)}


def access_of(metadata: ClusterMetadata) -> Access:
    return Access(
        credentials=dict(metadata.scram_credentials),
        acls=frozenset(metadata.acls.values()),
        quotas={entity: dict(values) for entity, values in metadata.client_quotas.items()},
    )


def write_access(store: Store, access: Access) -> None:
    store.create_acls(sorted(access.acls))
    store.alter_client_quotas(access.quotas)
    store.alter_scram_credentials(access.credentials)


def check_access(store: Store, access: Access) -> None:
    """Raise `StorageError` if a directory does not have just these."""
    found = Access(
        credentials=dict(store.scram_credentials), acls=frozenset(store.acls), quotas=dict(store.client_quotas)
    )
    if found != access:
        raise StorageError(f"{store.path}: the users, ACLs or quotas are not what was read: run restore again")
