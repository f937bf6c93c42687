"""Reads and changes the SCRAM credentials of a log directory without a running broker, or of a running broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from duralog.cli.voice.opened_store import opened_store
from duralog.client.users import UserClient
from duralog.operations.addresses import is_broker
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from duralog.storage.store import Store

Listed = tuple[str, ScramMechanism, int]
"""A user, a mechanism and its iterations."""


class Users(Protocol):
    def list(self) -> list[Listed]:
        """By name and mechanism."""

    def set(self, user: str, mechanisms: Sequence[ScramMechanism], password: str, iterations: int) -> None: ...

    def delete(self, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """REQUIRES: the user has these."""


class _OfDirectory:
    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> list[Listed]:
        found = [(name, each, held.iterations) for (name, each), held in self._store.scram_credentials.items()]
        return sorted(found, key=lambda listed: (listed[0], listed[1].value))

    def set(self, user: str, mechanisms: Sequence[ScramMechanism], password: str, iterations: int) -> None:
        self._store.alter_scram_credentials(
            {
                (user, mechanism): ScramCredential.of_password(mechanism, password, iterations=iterations)
                for mechanism in mechanisms
            }
        )

    def delete(self, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
        self._store.alter_scram_credentials({(user, mechanism): None for mechanism in mechanisms})


class _OfBroker:
    def __init__(self, client: UserClient) -> None:
        self._client = client

    def list(self) -> list[Listed]:
        found = [(name, ScramMechanism(number), iterations) for name, number, iterations in self._client.list()]
        return sorted(found, key=lambda listed: (listed[0], listed[1].value))

    def set(self, user: str, mechanisms: Sequence[ScramMechanism], password: str, iterations: int) -> None:
        # Kafka refuses a request that names a user twice.
        for mechanism in mechanisms:
            self._client.set(user, mechanism.value, password, iterations)

    def delete(self, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
        for mechanism in mechanisms:
            self._client.delete(user, mechanism.value)


@contextmanager
def opened_users(place: str, *, read_only: bool, create: bool = False, quiet: bool = False) -> Iterator[Users]:
    """Open the users of a directory or a broker."""
    if is_broker(place):
        yield _OfBroker(UserClient(place))
        return
    with opened_store(place, read_only=read_only, server_properties=None, create=create, quiet=quiet) as store:
        yield _OfDirectory(store)


def mechanisms_given(names: Sequence[str] | None) -> list[ScramMechanism]:
    """Those of `--mechanism`; all if there is none."""
    return [ScramMechanism.of(name) for name in dict.fromkeys(names or ())] or [*ScramMechanism]
