"""Explains the compaction of a log that a broker may compact at the same time."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.preview import ExplainSettings, Explanation, explain_compaction
from duralog.storage.disk.log_directory import FollowedCheckpoint
from duralog.storage.store import Store

_ATTEMPTS = 4
"""A broker that compacts the log meanwhile may delete segments that were listed. Then the log is read again."""


def explain_live(
    store: Store,
    partition: TopicPartition,
    config: TopicConfig,
    cleaned: FollowedCheckpoint,
    settings: ExplainSettings,
) -> Explanation:
    """What a compaction of the partition would do, if its topic had these configs.

    `cleaned` is the cleaner's checkpoint of the directory. REQUIRES: the store is read-only.
    """

    def explained(found: Store) -> Explanation:
        # Before the log: a broker may compact it meanwhile, and the checkpoint must not be ahead of the log.
        checkpoint = cleaned.read().get(partition)
        log = found.partition(*partition)
        log.update_config(config)
        return explain_compaction(log, checkpoint, settings)

    with ExitStack() as opened:
        for _ in range(_ATTEMPTS - 1):
            with suppress(DuralogError):
                return explained(store)
            # Its segments may have been deleted, or replaced, since their names were read.
            store = opened.enter_context(Store(store.paths, config=store.config, read_only=True))
        return explained(store)
