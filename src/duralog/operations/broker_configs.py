"""Reads, sets and resets the broker configs of a running broker, or of a log directory without a running broker.

In a directory they are records of the metadata log, as a broker writes them, and checked by the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from duralog.broker.configs.changes import broker_fault
from duralog.broker.configs.resources import all_brokers_entries, broker_entries
from duralog.client.configs import ConfigClient, plain_reason
from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.config.broker import broker_definition
from duralog.config.entries import (
    ALL_BROKERS_SOURCE,
    DEFAULT_SOURCE,
    STATIC_SOURCE,
    THIS_BROKER_SOURCE,
    Entry,
    Value,
)
from duralog.config.kafka_only_configs import is_known_to_kafka
from duralog.errors import DuralogError, InvalidConfig
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from duralog.storage.store import Store

_FOLLOWING_SECONDS, _FOLLOWING_PAUSE_SECONDS = 5.0, 0.05
_MAX_CONNECTIONS = "max.connections"
_STORED_SOURCES = (THIS_BROKER_SOURCE, ALL_BROKERS_SOURCE)


class BrokerConfigs(Protocol):
    """The broker configs of a directory or of a running broker."""

    @property
    def own(self) -> str:
        """The resource of this broker: its id."""
        ...

    @property
    def ignored(self) -> Mapping[str, str]:
        """The reasons why stored configs have no effect. A running broker does not report them."""
        ...

    def entries(self, resource: str) -> Sequence[Entry]:
        """All configs of this broker, or those set for `ALL_BROKERS`."""
        ...

    def alter(self, resource: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Set configs; None removes one."""
        ...


class StoreConfigs:
    """Of an opened directory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.own = str(store.node_id)
        self.ignored: Mapping[str, str] = store.config.ignored

    def entries(self, resource: str) -> Sequence[Entry]:
        if resource == ALL_BROKERS:
            return list(all_brokers_entries(self._store))
        return list(broker_entries(self._store, listeners=None))

    def alter(self, resource: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        fault = broker_fault(self._store, resource, changes)
        if fault is not None:
            raise InvalidConfig(f"{self._store.path}: {plain_reason(fault.message or '')}")
        if not validate_only:
            self._store.alter_configs_of(BROKER_RESOURCE, resource, changes)


class RunningBrokerConfigs:
    """Of a running broker, over a connection that the caller closes."""

    def __init__(self, client: ConfigClient) -> None:
        self._client = client
        self.own = str(client.node_id())
        self.ignored: Mapping[str, str] = {}

    def entries(self, resource: str) -> Sequence[Entry]:
        return self._client.entries(resource)

    def alter(self, resource: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        self._client.alter(resource, changes, validate_only=validate_only)
        if validate_only:
            return
        # Kafka responds when the controller has written them; the broker applies them a moment later.
        until = time.monotonic() + _FOLLOWING_SECONDS
        while not self._has_followed(resource, changes) and time.monotonic() < until:
            time.sleep(_FOLLOWING_PAUSE_SECONDS)

    def _has_followed(self, resource: str, changes: Mapping[str, str | None]) -> bool:
        stored = stored_texts(self.entries(resource), resource)
        return all(
            name not in stored if text is None else name in stored and stored[name] in (text, None)
            for name, text in changes.items()
        )


def set_configs(
    configs: BrokerConfigs, changes: Mapping[str, str], *, for_all: bool, validate_only: bool = False
) -> None:
    check_names(changes, configs.entries(configs.own))
    if _MAX_CONNECTIONS in changes:
        BrokerConfig.of({_MAX_CONNECTIONS: changes[_MAX_CONNECTIONS]})  # Kafka refuses 0 without a reason.
    configs.alter(ALL_BROKERS if for_all else configs.own, changes, validate_only=validate_only)


def reset_configs(configs: BrokerConfigs, names: Collection[str], *, validate_only: bool = False) -> list[str]:
    """Remove stored configs, for this broker and for all brokers. Returns the names of those that were set."""
    own = configs.entries(configs.own)
    for_this = stored_texts(own, configs.own)
    for_all = stored_texts(configs.entries(ALL_BROKERS), ALL_BROKERS)
    check_names([name for name in names if name not in for_all], own)
    for resource, stored in ((configs.own, for_this), (ALL_BROKERS, for_all)):
        changes = {name: None for name in names if name in stored}
        if changes:
            configs.alter(resource, changes, validate_only=validate_only)
    return [name for name in names if name in for_all or name in for_this]


def stored_texts(entries: Sequence[Entry], resource: str) -> dict[str, str | None]:
    """The stored configs of a resource. The value of a secret is None."""
    source = ALL_BROKERS_SOURCE if resource == ALL_BROKERS else THIS_BROKER_SOURCE
    return {value.name: value.text for entry in entries for value in entry.values if value.source == source}


def check_names(names: Collection[str], known: Sequence[Entry]) -> None:
    """Raise for a name that neither the broker nor Kafka knows: it is probably misspelled."""
    there = {entry.name for entry in known}
    for name in names:
        if name not in there and name not in BROKER_CONFIGS and not is_known_to_kafka(name):
            broker_definition(name)


def without_effect(entry: Entry) -> list[Value]:
    """The stored values of a config that are not in force, although no other stored value overrides them."""
    if entry.in_force_from not in (STATIC_SOURCE, DEFAULT_SOURCE):
        return []
    return [value for value in entry.values if value.source in _STORED_SOURCES and value.name == entry.name]


def chosen_entries(configs: BrokerConfigs, names: Sequence[str]) -> list[Entry]:
    """The configs of these names, in their order."""
    entries = configs.entries(configs.own)
    check_names(names, entries)
    by_name = {entry.name: entry for entry in (*configs.entries(ALL_BROKERS), *entries)}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise DuralogError(f"{', '.join(missing)}: not set, and without a default")
    return [by_name[name] for name in names]
