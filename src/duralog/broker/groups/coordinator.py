"""The group coordinator: all groups of the broker, their offsets, and the log that both come from.

Everything runs on the loop's thread. A lasting change of a group is written first and takes effect after that: a
request that could not be written has changed nothing, and its client gets an error. At start, everything is loaded from
the log before the first client is served.

The parts: `classic` for the classic protocol, `consumer` for the consumer protocol, `offsets` for the offsets of both,
`group_expiry` for expired offsets and groups, `known_groups` for the effect of records.
"""

from __future__ import annotations

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.classic.groups import ClassicGroups
from duralog.broker.groups.consumer.groups import ConsumerGroups
from duralog.broker.groups.consumer.mixed_groups import MixedGroups
from duralog.broker.groups.group_expiry import GroupExpiry
from duralog.broker.groups.group_loading import load_groups
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.offsets.commits import OffsetCommits
from duralog.broker.net.log_lines import logger
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics, TopicView
from duralog.broker.wire.error_codes import NOT_COORDINATOR


class GroupCoordinator(LoggedGroups):
    def __init__(self, runtime: Runtime, topics: Topics, partitions: Partitions) -> None:
        super().__init__(runtime, topics, partitions)
        self.classic = ClassicGroups(self)
        self.consumer_groups = ConsumerGroups(self, self.classic.rebalance)
        self.mixed_groups = MixedGroups(self.consumer_groups)
        self.commits = OffsetCommits(self, self.classic.rebalance)
        self.expiry = GroupExpiry(self, self.commits)

    def load(self) -> None:
        """Load the log. No request may be served before this has returned."""
        load_groups(self, self.log, logger)
        self.classic.loaded()
        self.consumer_groups.loaded()
        self.topics.on_deleted(self._topic_is_deleted)
        self.expiry.start()

    def close(self) -> None:
        """The broker stops. Its clients are disconnected by now."""
        self.expiry.stop()
        self._unload()

    # Transactions

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        """The transaction's marker is in this partition of `__consumer_offsets`."""
        self.offsets.complete(partition, producer_id, commit=commit)

    # Topics

    def _topic_is_deleted(self, topic: TopicView) -> None:
        if topic.name == CONSUMER_OFFSETS:
            self._unload()
        else:
            self.commits.remove_topic(topic.name, topic.topic_id)

    def _unload(self) -> None:
        """The log is gone: forget everything. Clients have to look for their coordinator again."""
        for group in self.by_id.values():
            if isinstance(group, ClassicGroup):
                group.dismiss(NOT_COORDINATOR)
            group.cancel_timers()
        self.by_id.clear()
        self.offsets.clear()
        self.log.unreadable.clear()
        self.log.skipped.clear()
