"""Explains the compaction of a log that a broker may compact at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress

from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.preview import ExplainSettings, Explanation, explain_compaction
from duralog.storage.disk.file_system import Entry, LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.store import Store

_ATTEMPTS = 4
"""A broker that compacts the log meanwhile may delete segments that were listed. Then the log is read again."""


class CleanerCheckpoints:
    """The offsets in `cleaner-offset-checkpoint` as it is now. The file is read again only if it has changed."""

    def __init__(self, path: str) -> None:
        self._files = LocalFileSystem()
        self._directory = LogDirectory(self._files, path)
        self._path = self._directory.path_of(CLEANER_OFFSET_CHECKPOINT)
        self._entry: Entry | None = None
        self._offsets: Mapping[TopicPartition, int] = {}

    def get(self, partition: TopicPartition) -> int | None:
        entry = self._files.entry(self._path)
        if entry != self._entry:
            self._entry = entry
            self._offsets = self._directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        return self._offsets.get(partition)


def explain_live(
    store: Store,
    partition: TopicPartition,
    config: TopicConfig,
    checkpoints: CleanerCheckpoints,
    settings: ExplainSettings,
) -> Explanation:
    """What a compaction of the partition would do, if its topic had these configs. REQUIRES: the store is read-only."""

    def explained(found: Store) -> Explanation:
        # Before the log: a broker may compact it meanwhile, and the checkpoint must not be ahead of the log.
        checkpoint = checkpoints.get(partition)
        log = found.partition(*partition)
        log.update_config(config)
        return explain_compaction(log, checkpoint, settings)

    with ExitStack() as opened:
        for _ in range(_ATTEMPTS - 1):
            with suppress(DuralogError):
                return explained(store)
            # Its segments may have been deleted, or replaced, since their names were read.
            store = opened.enter_context(Store(store.path, config=store.config, read_only=True))
        return explained(store)
