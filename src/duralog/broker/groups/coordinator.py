"""The group coordinator: all groups of the broker, their offsets, and the log that both come from.

Everything is on the loop's thread. What changes a group for good is written first and in force after that: a request
that could not be written has changed nothing, and its client is told so. At start, everything is read back from the
log before the first client is served.

How groups work is elsewhere: `classic_groups` for the classic protocol, `consumer_groups` for the newer one,
`offset_commits` for the offsets of both, `group_expiry` for their end, `known_groups` for what the records tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.classic.groups import ClassicGroups
from duralog.broker.groups.consumer.groups import ConsumerGroups
from duralog.broker.groups.group import Group
from duralog.broker.groups.group_expiry import GroupExpiry
from duralog.broker.groups.group_loading import load_groups
from duralog.broker.groups.group_log import GroupLog
from duralog.broker.groups.known_groups import KnownGroups
from duralog.broker.groups.offsets.commits import Committer, Errors, OffsetCommits, TopicCommit
from duralog.broker.groups.offsets.table import PartitionCommit
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.topics.topics import TopicView
from duralog.broker.wire.error_codes import GROUP_ID_NOT_FOUND, NOT_COORDINATOR
from duralog.format.internal.coordinator_records import CoordinatorRecord, encode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES

if TYPE_CHECKING:
    from duralog.broker.broker import Broker


class GroupCoordinator(KnownGroups):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.clock)
        self.broker = broker
        self.log = GroupLog(broker)
        self.commits = OffsetCommits(self)
        self.classic = ClassicGroups(self)
        self.consumer_groups = ConsumerGroups(self)
        self.expiry = GroupExpiry(self)

    def load(self) -> None:
        """Read the log. Before this, and unless it has returned, no request may be served."""
        load_groups(self, self.log, self.broker.log)
        self.classic.loaded()
        self.consumer_groups.loaded()
        self.broker.topics.on_deleted(self._topic_is_deleted)
        self.expiry.start()

    def close(self) -> None:
        """The broker stops. Its clients are gone by now."""
        self.expiry.stop()
        self._unload()

    # Groups

    def group(self, group_id: str) -> Group:
        group = self.by_id.get(group_id)
        if group is None:
            raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def classic_group(self, group_id: str) -> ClassicGroup:
        group = self.group(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def partition_for(self, group_id: str) -> int:
        return self.log.partition_for(group_id)

    def check_ready(self, group_id: str) -> None:
        """Refuse if there is no log for the group: its client has to ask for the coordinator, which makes it."""
        self.log.check_ready(group_id)

    # The log

    def append(self, group_id: str, records: Sequence[CoordinatorRecord], *, replay: bool = True) -> None:
        """Write the records as one batch; then, unless the caller does it itself, let each of them take effect.

        Raises GroupRefusal if they could not be written: then nothing has changed.
        """
        self.log.append(group_id, [encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) for record in records])
        if replay:
            for record in records:
                misfit = self.replay(record)
                if misfit is not None:
                    self.broker.log_lines.fail("misfit", f"a record without effect was written: {misfit}")

    # Transactions

    def commit_in_transaction(
        self,
        *,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        producer_id: int,
        producer_epoch: int,
        topics: Sequence[tuple[str, UUID | None, Sequence[PartitionCommit]]],
        version: int,
    ) -> Errors:
        """Commit offsets that count when the producer's transaction is committed. Raises GroupRefusal for all."""
        committer = Committer(group_id, member_id, instance_id, generation, version)
        commits = [TopicCommit(*topic) for topic in topics]
        return self.commits.commit_in_transaction(committer, commits, producer_id, producer_epoch)

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
        """There is no log any more: nothing is known, and everybody has to ask anew."""
        for group in self.by_id.values():
            if isinstance(group, ClassicGroup):
                group.dismiss(NOT_COORDINATOR)
            group.cancel_timers()
        self.by_id.clear()
        self.offsets.clear()
        self.log.unreadable.clear()
        self.log.skipped.clear()
