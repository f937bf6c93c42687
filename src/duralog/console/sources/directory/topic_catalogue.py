"""The topics of a directory and their configs, as its cluster metadata has them: read again only when that has changed.

Where the metadata cannot be read, folders alone tell which topics there are, with the defaults for configs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from duralog.config import TOPIC_CONFIGS, BrokerConfig, Origin, TopicConfig
from duralog.errors import DuralogError
from duralog.format.filenames import META_PROPERTIES, PartitionFolder
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.metadata.topics import Topic
from duralog.storage.store import Store

_METADATA_FOLDER = PartitionFolder(*METADATA_PARTITION).name


class TopicCatalogue:
    """One thread refreshes it; any thread may ask."""

    def __init__(self, directory: str, config: BrokerConfig) -> None:
        self._directory = directory
        self.given_config = config
        self._seen: object = None
        self._store: Store | None = None
        self.trouble: str | None = None

    def refresh(self, places: Iterable[TopicPartition]) -> None:
        """`places` are the partitions that have folders now."""
        seen = (frozenset(places), self._metadata_files())
        if seen == self._seen:
            return
        try:
            self._store = Store(self._directory, config=self.given_config, read_only=True)
            self._seen, self.trouble = seen, None
        except DuralogError as error:
            self.trouble = str(error)

    @property
    def cluster_id(self) -> str | None:
        return None if self._store is None else self._store.cluster_id

    @property
    def node_id(self) -> int | None:
        return None if self._store is None else self._store.node_id

    @property
    def broker_config(self) -> BrokerConfig:
        return self.given_config if self._store is None else self._store.config

    def find(self, topic: str) -> Topic | None:
        return None if self._store is None else self._store.find_topic(topic)

    def config(self, topic: str) -> TopicConfig:
        """In force for the topic; the defaults for one that is not known yet."""
        found = self.find(topic)
        return self.broker_config.topic_defaults() if found is None else found.config

    def shown_configs(self, topic: str) -> Mapping[str, str]:
        """Those that are not Kafka's defaults."""
        config = self.config(topic)
        return {
            name: config.text(name)
            for name in sorted(TOPIC_CONFIGS)
            if config.source(name).origin is not Origin.DEFAULT
        }

    def _metadata_files(self) -> object:
        found = []
        for folder in (self._directory, f"{self._directory}/{_METADATA_FOLDER}"):
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if folder is not self._directory or entry.name == META_PROPERTIES:
                            status = entry.stat()
                            found.append((entry.name, status.st_size, status.st_mtime_ns))
            except OSError:
                continue
        return tuple(sorted(found))
