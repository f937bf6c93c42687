"""Committing, fetching and deleting offsets, for either kind of group.

A commit is written to the log before it is in the table, and so before it is answered: an acknowledged commit is there
after a crash. Any client may commit to a group that has no members: it is created if it does not exist.

Topics and partitions were checked by the handlers: here they exist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from duralog.broker.groups.classic.group import ClassicGroup, ClassicState
from duralog.broker.groups.classic.rebalance import ClassicRebalance
from duralog.broker.groups.group import Group, PartitionCheck
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.offsets.records import (
    CommittedOffset,
    OffsetKey,
    encode_offset_key,
    encode_offset_value,
)
from duralog.broker.groups.offsets.table import PartitionCommit
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.tombstone_batches import tombstone_batches
from duralog.broker.wire.error_codes import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNSTABLE_OFFSET_COMMIT,
)
from duralog.broker.wire.request import Fields
from duralog.format.layout import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_BY_ID_VERSION = 9
"""From this version of OffsetCommit on, clients know that a group may not be found."""
GROUPS_PER_TURN = 100
"""Groups whose offsets of a deleted topic are removed in one turn of the loop."""
_NO_ID = UUID(int=0)
_NO_OFFSET = -1
_NO_RETENTION = -1
_LAST_MS = 2**63 - 1
"""The expiry time if the requested retention exceeds what a timestamp can hold."""


class TopicCommit(NamedTuple):
    """What a client wants to commit for a topic."""

    topic: str
    topic_id: UUID | None
    partitions: Sequence[PartitionCommit]


class Committer(NamedTuple):
    """The sender of a commit. A consumer that is not in a group has no member id and a negative epoch."""

    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int
    """Its generation, or its member epoch."""
    version: int
    """Of the request."""


class TopicPartitions(NamedTuple):
    topic: str
    topic_id: UUID | None
    partitions: Sequence[int]


Errors = dict[tuple[str, int], int]
"""An error code, or NONE, for each topic and partition."""


class OffsetCommits:
    def __init__(self, groups: LoggedGroups, rebalance: ClassicRebalance) -> None:
        self._groups = groups
        self._runtime = groups.runtime
        self._rebalance = rebalance
        self._table = groups.offsets
        self._log = groups.log

    # Committing

    def commit(self, committer: Committer, topics: Sequence[TopicCommit], retention_ms: int = _NO_RETENTION) -> Errors:
        """`retention_ms` is what versions 2 to 4 can ask for; -1 leaves it to the broker."""
        self._log.check_ready(committer.group_id)
        check = self._check_commit(committer)
        now_ms = self._runtime.clock()
        expire_ms = None if retention_ms == _NO_RETENTION else min(now_ms + retention_ms, _LAST_MS)
        errors, commits = self._chosen(committer.group_id, topics, check, now_ms, expire_ms)
        if commits:
            first_offset = self._append(committer.group_id, commits)
            self._groups.find_or_make(committer.group_id)
            for place, (key, committed) in enumerate(commits):
                self._table.put(key, committed._replace(record_offset=first_offset + place))
        return errors

    def commit_in_transaction(
        self, committer: Committer, topics: Sequence[TopicCommit], producer_id: int, producer_epoch: int
    ) -> Errors:
        """They count when the transaction is committed. Topic ids are only checked: Kafka does not keep them here."""
        self._log.check_ready(committer.group_id)
        check = self._check_transactional(committer)
        try:
            errors, commits = self._chosen(
                committer.group_id, topics, check, self._runtime.clock(), None, keep_ids=False
            )
        except GroupRefusal as refusal:
            raise _as_generation(refusal) from None
        if producer_id < 0 or producer_epoch < 0:
            # In the log it would not be transactional, and count at once. Only reached without verification.
            raise GroupRefusal(UNKNOWN_SERVER_ERROR)
        if commits:
            first_offset = self._append(committer.group_id, commits, producer_id, producer_epoch)
            partition = self._log.partition_for(committer.group_id)
            self._groups.find_or_make(committer.group_id)
            for place, (key, committed) in enumerate(commits):
                written = committed._replace(record_offset=first_offset + place)
                self._table.put_pending(partition, producer_id, key, written)
        return errors

    def _append(
        self,
        group_id: str,
        commits: Iterable[tuple[OffsetKey, CommittedOffset]],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> int:
        records = [(encode_offset_key(key), encode_offset_value(committed)) for key, committed in commits]
        return self._log.append(group_id, records, producer_id=producer_id, producer_epoch=producer_epoch)

    def _check_commit(self, by: Committer) -> PartitionCheck | None:
        group = self._groups.by_id.get(by.group_id)
        if group is None:
            if by.epoch < 0:
                return None
            if by.version >= _BY_ID_VERSION:
                raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {by.group_id} not found.")
            raise GroupRefusal(ILLEGAL_GENERATION)
        check = group.check_commit(by.member_id, by.instance_id, by.epoch, transactional=False, version=by.version)
        if isinstance(group, ClassicGroup) and group.is_in(ClassicState.STABLE, ClassicState.PREPARING):
            self._rebalance.keep_alive(group, group.members[by.member_id])
        return check

    def _check_transactional(self, by: Committer) -> PartitionCheck | None:
        group = self._groups.by_id.get(by.group_id)
        if group is None:
            if by.epoch >= 0:
                raise GroupRefusal(ILLEGAL_GENERATION)
            return None
        try:
            return group.check_commit(by.member_id, by.instance_id, by.epoch, transactional=True, version=by.version)
        except GroupRefusal as refusal:
            raise _as_generation(refusal) from None

    def _chosen(
        self,
        group_id: str,
        topics: Sequence[TopicCommit],
        check: PartitionCheck | None,
        now_ms: int,
        expire_ms: int | None,
        *,
        keep_ids: bool = True,
    ) -> tuple[Errors, list[tuple[OffsetKey, CommittedOffset]]]:
        """The offsets to write, and the results."""
        errors: Errors = {}
        commits: list[tuple[OffsetKey, CommittedOffset]] = []
        longest = self._runtime.config.offset_metadata_max_bytes
        for topic, topic_id, partitions in topics:
            for partition, offset, leader_epoch, text in partitions:
                metadata = text or ""
                if _java_length(metadata) > longest:
                    errors[topic, partition] = OFFSET_METADATA_TOO_LARGE
                    continue
                if check is not None:
                    check(topic, topic_id or _NO_ID, partition)
                errors[topic, partition] = NONE
                committed = CommittedOffset(
                    offset, leader_epoch, metadata, now_ms, expire_ms, topic_id if keep_ids else None
                )
                commits.append((OffsetKey(group_id, topic, partition), committed))
        return errors, commits

    # Fetching

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        epoch: int,
        topics: Sequence[TopicPartitions] | None,
        *,
        require_stable: bool,
    ) -> list[Fields]:
        """The offsets of these partitions, -1 for those without one; None asks for all of the group.

        With `require_stable`, a partition with a pending transactional commit has an error instead.
        """
        self._log.check_ready(group_id)
        group = self._groups.by_id.get(group_id)
        if group is not None:
            group.check_fetch(member_id, epoch)
        committed = self._table.of_group(group_id) if group is not None else {}
        if topics is None:
            topics = [TopicPartitions(topic, None, list(partitions)) for topic, partitions in committed.items()]
        answers: list[Fields] = []
        for topic, topic_id, numbers in topics:
            known = committed.get(topic, {})
            partitions: list[Fields] = []
            for number in numbers:
                found = known.get(number)
                if require_stable and self._table.is_pending(OffsetKey(group_id, topic, number)):
                    partitions.append(no_offset(number, UNSTABLE_OFFSET_COMMIT))
                elif found is None or (found.topic_id and topic_id and found.topic_id != topic_id):
                    partitions.append(no_offset(number))
                else:
                    partitions.append(
                        {
                            "partition_index": number,
                            "committed_offset": found.offset,
                            "committed_leader_epoch": found.leader_epoch,
                            "metadata": found.metadata,
                            "error_code": NONE,
                        }
                    )
            answers.append({"name": topic, "topic_id": topic_id, "partitions": partitions})
        return answers

    # Deleting

    def delete(self, group_id: str, topics: Iterable[tuple[str, Sequence[int]]]) -> Errors:
        """Delete the group's offsets of these partitions, unless a member reads the topic."""
        self._log.check_ready(group_id)
        group = self._groups.group(group_id)
        group.check_offset_delete()
        errors: Errors = {}
        gone: dict[OffsetKey, None] = {}
        for topic, partitions in topics:
            is_read = group.is_subscribed_to(topic)
            for partition in partitions:
                errors[topic, partition] = GROUP_SUBSCRIBED_TO_TOPIC if is_read else NONE
                key = OffsetKey(group_id, topic, partition)
                if not is_read and (self._table.get(key) is not None or self._table.is_pending(key)):
                    gone[key] = None
        self.remove(group_id, gone)
        return errors

    def delete_group(self, group_id: str) -> None:
        """Delete all of its offsets, then the group itself."""
        self._log.check_ready(group_id)
        group = self._groups.group(group_id)
        group.check_delete()
        self.remove(group_id, self._table.keys_of_group(group_id))
        self.remove_group(group)

    def remove(self, group_id: str, keys: Iterable[OffsetKey]) -> None:
        """Write tombstones, then forget the offsets. On GroupRefusal, those of earlier batches are gone."""
        most = self._log.max_message_bytes
        for some in tombstone_batches(list(keys), lambda key: len(key.group_id) + len(key.topic), most):
            self._log.append(group_id, [(encode_offset_key(key), None) for key in some])
            for key in some:
                self._table.remove(key)

    def remove_group(self, group: Group) -> None:
        self._groups.append(group.group_id, group.tombstones(), replay=False)
        self._groups.remove(group.group_id)

    def remove_topic(self, topic: str, topic_id: UUID) -> None:
        """A topic was deleted: delete all offsets of it.

        Some groups are done at once, the others in the next turns of the loop.
        """
        self._remove_from(deque(self._table.groups_of_topic(topic)), topic, topic_id, self._log.ends())

    def _remove_from(self, group_ids: deque[str], topic: str, topic_id: UUID, ends: Mapping[int, int]) -> None:
        for _ in range(min(GROUPS_PER_TURN, len(group_ids))):
            group_id = group_ids.popleft()
            before = ends.get(self._log.partition_for(group_id), 0)
            keys = [key for key in self._table.keys_of(group_id, topic) if self._is_of(key, topic_id, before)]
            try:
                self.remove(group_id, keys)
            except GroupRefusal as refusal:
                # The partitions of the other groups may be writable.
                reason = f"offsets of group {group_id} for the deleted topic {topic} are kept: {refusal}"
                self._runtime.log_lines.warn("offsets of a deleted topic", reason)
        if group_ids:
            self._runtime.timers.after(0, lambda: self._remove_from(group_ids, topic, topic_id, ends))

    def _is_of(self, key: OffsetKey, topic_id: UUID, before: int) -> bool:
        """Whether an offset is of the topic with this id, not of another that had the name before or since.

        `before`: where the log of the group ended when the topic was deleted.
        """
        known = self._table.get(key)
        return any(
            committed.topic_id in (None, topic_id) and committed.record_offset < before
            for committed in (*self._table.pending_of(key), *(() if known is None else (known,)))
        )


def no_offset(partition: int, error_code: int = NONE) -> Fields:
    """The answer for a partition without a committed offset, or with an error."""
    return {
        "partition_index": partition,
        "committed_offset": _NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": error_code,
    }


def _as_generation(refusal: GroupRefusal) -> GroupRefusal:
    """Transactional producers know no member epochs."""
    return GroupRefusal(ILLEGAL_GENERATION) if refusal.error_code == STALE_MEMBER_EPOCH else refusal


def _java_length(text: str) -> int:
    """The limit counts the UTF-16 units of the text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
