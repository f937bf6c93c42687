"""A log directory or a running broker, opened so that its topics, groups, configs and records can be changed.

A directory is locked meanwhile, so it is refused while a broker has it open: then use the broker. Both raise
`DuralogError` with a message for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from duralog.client.acls import BrokerAcls
from duralog.client.configs import ConfigClient
from duralog.client.groups import BrokerGroups
from duralog.client.producing import Placed, Written, to_broker
from duralog.client.topics import BrokerTopics
from duralog.client.unknown_names import unknown_partition
from duralog.config import BrokerConfig, TopicConfig
from duralog.config.entries import Entry
from duralog.format.record import Record
from duralog.operations.acls import Acls, DirectoryAcls
from duralog.operations.broker_configs import BrokerConfigs, RunningBrokerConfigs, StoreConfigs
from duralog.operations.groups.reset_offsets import ResettableGroups
from duralog.operations.groups.stored_groups import StoreGroups
from duralog.operations.opened_store import check_log_directory, opened_for_writing
from duralog.operations.records.produced import check_record, to_store
from duralog.operations.stored_topics import StoreTopics
from duralog.storage.metadata.cluster_metadata import TOPIC_RESOURCE
from duralog.storage.store import Store


class Position(NamedTuple):
    partition: int
    offset: int


class ChangeableGroups(ResettableGroups, Protocol):
    def check(self, name: str) -> int:
        """The number of committed offsets of a group. Raises if it may not be deleted."""

    def delete(self, name: str) -> None: ...


class Target(Protocol):
    """For each method that changes something there is one that only checks, and raises the errors of the change."""

    def groups(self, *, evicts: bool = False) -> ChangeableGroups:
        """With `evicts`, members of a directory's groups that have not left are removed."""

    def configs(self) -> BrokerConfigs: ...

    def acls(self) -> Acls: ...

    def topic_configs(self, topic: str) -> list[Entry]: ...

    def topic_id(self, topic: str) -> str | None:
        """Differs if the topic was deleted and created again. Raises `UnknownTopic`."""

    def check_new_topic(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> None: ...

    def create_topic(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> int:
        """Returns the number of partitions."""

    def check_alteration(self, topic: str, changes: Mapping[str, str | None], partitions: int | None) -> None: ...

    def alter_topic(self, topic: str, changes: Mapping[str, str | None], partitions: int | None) -> None:
        """Set configs, of which None removes one, and add partitions up to a number."""

    def delete_topic(self, topic: str) -> None: ...

    def check_record(self, topic: str, partition: int | None, record: Record) -> None: ...

    def produce(self, topic: str, partition: int | None, record: Record) -> Position:
        """Without a partition, that of the key."""


class DirectoryTarget:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._topics = StoreTopics(store)

    def groups(self, *, evicts: bool = False) -> StoreGroups:
        return StoreGroups(self._store.path, self._store, evicts=evicts)

    def configs(self) -> StoreConfigs:
        return StoreConfigs(self._store)

    def acls(self) -> DirectoryAcls:
        return DirectoryAcls(self._store)

    def topic_configs(self, topic: str) -> list[Entry]:
        return self._topics.entries(topic)

    def topic_id(self, topic: str) -> str | None:
        return self._store.topic_id(topic)

    def check_new_topic(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> None:
        self._topics.check_new(topic, partitions, configs)

    def create_topic(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> int:
        self._store.create_topic(topic, partitions, configs)
        return len(self._store.partitions(topic))

    def check_alteration(self, topic: str, changes: Mapping[str, str | None], partitions: int | None) -> None:
        self._topics.check_alteration(topic, changes, partitions)

    def alter_topic(self, topic: str, changes: Mapping[str, str | None], partitions: int | None) -> None:
        self._topics.alter(topic, changes, partitions)

    def delete_topic(self, topic: str) -> None:
        self._store.delete_topic(topic)

    def check_record(self, topic: str, partition: int | None, record: Record) -> None:
        found = self._store.find_topic(topic)
        numbers = self._store.partitions(topic)
        if partition is not None and partition not in numbers:
            raise unknown_partition(self._store.path, topic, partition, numbers)
        check_record(topic, TopicConfig() if found is None else found.config, record)

    def produce(self, topic: str, partition: int | None, record: Record) -> Position:
        written: dict[int, Written] = {}
        to_store(self._store, topic, [[(None, record)]], partition=partition, codec=None, written=written)
        return _position(written)


class BrokerTarget:
    def __init__(self, address: str, client: ConfigClient) -> None:
        self._address = address
        self._client = client
        self._topics = BrokerTopics(address)

    def groups(self, *, evicts: bool = False) -> BrokerGroups:  # noqa: ARG002 (a broker knows its members)
        return BrokerGroups(self._address)

    def configs(self) -> RunningBrokerConfigs:
        return RunningBrokerConfigs(self._client)

    def acls(self) -> BrokerAcls:
        return BrokerAcls(self._address)

    def topic_configs(self, topic: str) -> list[Entry]:
        return self._client.entries(topic, TOPIC_RESOURCE)

    def topic_id(self, topic: str) -> str | None:
        return self._topics.found(topic)[0]

    def check_new_topic(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> None:
        self._topics.check_new(topic, partitions, configs)

    def create_topic(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> int:
        return self._topics.create(topic, partitions, configs)[1]

    def check_alteration(self, topic: str, changes: Mapping[str, str | None], partitions: int | None) -> None:
        self._topics.alter(topic, changes, partitions, validate_only=True)

    def alter_topic(self, topic: str, changes: Mapping[str, str | None], partitions: int | None) -> None:
        self._topics.alter(topic, changes, partitions)

    def delete_topic(self, topic: str) -> None:
        self._topics.delete(topic)

    def check_record(self, topic: str, partition: int | None, record: Record) -> None:
        # A broker may create a topic that is missing: here it was deleted, or misspelled.
        count = self._topics.count(topic)
        if partition is not None and partition >= count:
            raise unknown_partition(self._address, topic, partition, range(count))
        texts = {entry.name: entry.text for entry in self.topic_configs(topic) if entry.text is not None}
        check_record(topic, TopicConfig().with_stored(texts), record)

    def produce(self, topic: str, partition: int | None, record: Record) -> Position:
        written: dict[int, Written] = {}
        placed: list[list[Placed]] = [[(None, record)]]
        self.check_record(topic, partition, record)
        to_broker(self._address, topic, placed, partition=partition, codec=None, written=written)
        return _position(written)


@contextmanager
def opened_directory(path: str, *, read_only: bool) -> Iterator[DirectoryTarget]:
    """Raises `StoreLocked`, with the process that has it, unless it is only read."""
    check_log_directory(path)
    if read_only:
        with Store(path, read_only=True) as store:
            yield DirectoryTarget(store)
        return
    with opened_for_writing(path, BrokerConfig(), load_on_use=True) as store:
        yield DirectoryTarget(store)


@contextmanager
def opened_broker(address: str) -> Iterator[BrokerTarget]:
    with ConfigClient(address) as client:
        yield BrokerTarget(address, client)


def _position(written: Mapping[int, Written]) -> Position:
    ((partition, one),) = written.items()
    return Position(partition, one.first_offset)
