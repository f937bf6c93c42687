"""The topics of an opened directory, and changes of them, as `duralog.client.topics` has them for a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from duralog.broker.configs.resources import topic_entries
from duralog.config.entries import Entry
from duralog.config.topic import parse_topic_configs, topic_definition
from duralog.storage.metadata.changes import check_more_partitions, check_new_topic
from duralog.storage.store import Store


class TopicSize(NamedTuple):
    partitions: int
    size_bytes: int
    """Of the partitions that can be read."""


class StoreTopics:
    def __init__(self, store: Store) -> None:
        self._store = store

    def check_new(self, name: str, partitions: int | None, configs: Mapping[str, object]) -> None:
        """Raise what the creation of this topic would. The store need not be open for writing."""
        count = self._store.config.num_partitions if partitions is None else partitions
        check_new_topic(self._store.topics(), name, count)
        self._store.config.topic_defaults().with_overrides(configs)

    def alter(self, name: str, changes: Mapping[str, object], partitions: int | None) -> None:
        """Set configs, of which None removes one, and add partitions up to a number."""
        self.check_alteration(name, changes, partitions)
        if changes:
            self._store.alter_topic_config(name, changes)
        if partitions is not None:
            self._store.add_partitions(name, partitions)

    def check_alteration(self, name: str, changes: Mapping[str, object], partitions: int | None) -> None:
        """Raise what `alter` would, before anything is changed."""
        present = len(self._store.partitions(name))
        if partitions is not None:
            check_more_partitions(name, present, partitions)
        stored = self._store.topic_overrides(name)
        for key, value in changes.items():
            if value is None and key not in stored:
                topic_definition(key)
        own = {**stored, **changes}
        parse_topic_configs({key: value for key, value in changes.items() if value is not None})
        kept = {key: value for key, value in own.items() if value is not None}
        self._store.config.topic_defaults().with_stored(kept).check()

    def size(self, name: str) -> TopicSize:
        numbers = self._store.partitions(name)
        present = [number for number in numbers if (name, number) not in self._store.offline]
        return TopicSize(len(numbers), sum(self._store.partition(name, number).size_bytes for number in present))

    def entries(self, name: str) -> list[Entry]:
        """All configs of a topic, with where each value comes from."""
        self._store.partitions(name)
        topic = self._store.find_topic(name)
        return [] if topic is None else list(topic_entries(self._store, topic))
