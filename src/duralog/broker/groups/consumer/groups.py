"""The coordinator of consumer groups (KIP-848): handles heartbeats, timers and changed topics.

Every operation computes records and an answer from the current groups and appends the records as one batch. Only then
they take effect (`replay`). If they cannot be appended, nothing has changed, and the client gets an error.

A heartbeat applies the member's subscription, and takes the member one step towards its target assignment
(`member_change`). Members that are silent for too long, or that keep others waiting, are removed (`member_timers`).
Members that speak the classic protocol are in `mixed_groups`, conversions between the protocols in `group_conversion`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.classic.rebalance import ClassicRebalance
from duralog.broker.groups.consumer.assignors import Assignment
from duralog.broker.groups.consumer.group import ConsumerGroup, subscribed_names
from duralog.broker.groups.consumer.group_conversion import (
    check_upgrade,
    downgraded,
    may_downgrade,
    upgraded,
    whole_group_records,
)
from duralog.broker.groups.consumer.heartbeat_request import HeartbeatRequest
from duralog.broker.groups.consumer.member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    Deadline,
    MemberState,
    with_epochs,
    without_epochs,
)
from duralog.broker.groups.consumer.member_change import MemberChange
from duralog.broker.groups.consumer.member_lookup import dynamic_member, known_static, static_member
from duralog.broker.groups.consumer.member_timers import MemberTimers
from duralog.broker.groups.consumer.metadata_hash import group_hash, topic_hash
from duralog.broker.groups.consumer.records import current_assignment_record
from duralog.broker.groups.consumer.regex_refresh import RegexRefresh
from duralog.broker.groups.consumer.target_assignment import offered_assignors
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.log_lines import logger
from duralog.broker.topics.topics import TopicView
from duralog.broker.wire.error_codes import (
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    NONE,
    REBALANCE_IN_PROGRESS,
)
from duralog.errors import CorruptRecord
from duralog.format.internal.coordinator_records import CoordinatorRecord
from duralog.format.uuids import uuid_text
from duralog.storage.metadata.cluster_metadata import GROUP_RESOURCE

Fields = dict[str, Any]
_FIRST_LEVEL: Final = 1
"""Of the feature `group.version`, with which there are consumer groups of the newer protocol."""
_cached_topic_hash: Final = lru_cache(maxsize=4096)(topic_hash)


class ConsumerGroups:
    """All consumer groups of the broker. They are in one table with the classic ones."""

    def __init__(self, groups: LoggedGroups, rebalance: ClassicRebalance) -> None:
        self.groups = groups
        self._runtime = groups.runtime
        self._topics = groups.topics
        self._rebalance = rebalance
        self.regexes = RegexRefresh(groups, self.metadata_hash)
        self.timers = MemberTimers(self._runtime, groups.by_id, self.fence)

    def loaded(self) -> None:
        """The log is loaded: start the session of every member, and listen to changes of topics."""
        configured = self._runtime.config.group_consumer_assignors
        if len(offered_assignors(configured)) != len(configured):
            offered = ", ".join(offered_assignors(configured))
            logger.warning("group.consumer.assignors: of %s, only %s is available", ",".join(configured), offered)
        for group in self.all():
            for member in group.members.values():
                self.start_session(group, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self.timers.start(group, member, Deadline.REVOCATION, member.rebalance_timeout_ms)
        self.regexes.loaded()
        self._topics.on_changed(self._topic_changed)
        self._topics.on_deleted(self._topic_changed)

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster has Kafka's feature of the newer protocol. A new one has it."""
        return self._runtime.store.features.get("group.version", 0) >= _FIRST_LEVEL

    def all(self) -> list[ConsumerGroup]:
        return [group for group in self.groups.by_id.values() if isinstance(group, ConsumerGroup)]

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupRefusal(GROUP_ID_NOT_FOUND, _is_no_consumer_group(group_id))
        return group

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Of those of the topics that exist."""
        racks = () if self._runtime.node.rack is None else (self._runtime.node.rack,)
        hashes: dict[str, int] = {}
        for name in names:
            view = self._topics.by_name(name)
            if view is not None:
                hashes[name] = _cached_topic_hash(view.topic_id, name, len(view.partitions), racks)
        return group_hash(hashes)

    def setting(self, group_id: str, name: str) -> int:
        """The group's own config, or else that of the broker."""
        own = self._runtime.store.configs_of(GROUP_RESOURCE, group_id).get(f"consumer.{name}")
        value: int = self._runtime.config.get(f"group.consumer.{name}") if own is None else int(own)
        return value

    def _topic_changed(self, topic: TopicView) -> None:
        for group in self.all():
            if group.is_subscribed_to(topic.name):
                group.is_metadata_stale = True

    # Heartbeats

    def heartbeat(self, asked: HeartbeatRequest) -> Fields:
        """Join, stay, or get a new assignment."""
        now_ms = self._runtime.clock()
        known = self.groups.by_id.get(asked.group_id)
        change = self._start_change(asked)
        change.take_in_subscription(now_ms)
        change.make_target(now_ms)
        change.reconcile(asked.owned)
        group, member = change.write(), change.member
        if isinstance(known, ClassicGroup):
            self._settle_upgraded(known, group)
        self.start_session(group, member)
        answer: Fields = {
            "error_code": NONE,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": self.setting(group.group_id, "heartbeat.interval.ms"),
            "assignment": None,
        }
        if asked.epoch == JOINING_EPOCH or asked.is_full or member.assigned != change.before.assigned:
            topics = [{"topic_id": topic, "partitions": sorted(numbers)} for topic, numbers in member.assigned.items()]
            answer["assignment"] = {"topic_partitions": topics}
        return answer

    def _start_change(self, asked: HeartbeatRequest) -> MemberChange:
        """Find the group and the member, and apply the member's own data."""
        group, records = self._group_of(asked)
        self.check_room(group, asked.member_id)
        member_id = asked.member_id or uuid_text(uuid.uuid4().bytes)
        if asked.instance_id is None:
            before, replaced = dynamic_member(group, asked, member_id), None
        else:
            before, replaced = static_member(group, asked, asked.instance_id, member_id)
        said: dict[str, Any] = {
            "instance_id": asked.instance_id,
            "rack_id": asked.rack_id,
            "rebalance_timeout_ms": None if asked.rebalance_timeout_ms == -1 else asked.rebalance_timeout_ms,
            "server_assignor": asked.server_assignor,
            "topic_names": asked.topic_names,
            "topic_regex": asked.topic_regex,
        }
        member = replace(
            before,
            client_id=asked.client_id,
            client_host=asked.client_host,
            classic=None,
            **{name: value for name, value in said.items() if value is not None},
        )
        return MemberChange(self, group, before, member, replaced, records)

    def _group_of(self, asked: HeartbeatRequest) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """The group, or a new one for a joining member, and records by which it replaces a classic one."""
        group = self.groups.by_id.get(asked.group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if asked.epoch == JOINING_EPOCH:
            if group is None:
                return ConsumerGroup(asked.group_id), []
            if isinstance(group, ClassicGroup) and group.is_empty:
                return ConsumerGroup(asked.group_id), group.tombstones()
            if isinstance(group, ClassicGroup):
                check_upgrade(group, self._runtime.config)
                new = upgraded(group, self._topics, self.metadata_hash)
                return new, [*group.tombstones(), *whole_group_records(new)]
        what = f"Consumer group {asked.group_id} not found." if group is None else _is_no_consumer_group(asked.group_id)
        raise GroupRefusal(GROUP_ID_NOT_FOUND, what)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        most = self._runtime.config.group_consumer_max_size
        if len(group.members) >= most and member_id not in group.members:
            raise GroupRefusal(
                GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {most} members."
            )

    def _settle_upgraded(self, classic: ClassicGroup, group: ConsumerGroup) -> None:
        """A classic group is a consumer group now: its members, if it had any, have to join again."""
        logger.info("group %s is a consumer group now, and was a classic one", group.group_id)
        classic.dismiss(REBALANCE_IN_PROGRESS)
        for member in group.members.values():
            if member.classic is not None:
                self.start_session(group, member)

    def start_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member has sent a request."""
        if member.classic is None:
            timeout_ms = self.setting(group.group_id, "session.timeout.ms")
        else:
            timeout_ms = member.classic.session_timeout_ms
        self.timers.start(group, member, Deadline.SESSION, timeout_ms)

    # Leaving

    def leave(self, asked: HeartbeatRequest) -> Fields:
        group = self.consumer_group(asked.group_id)
        if asked.instance_id is None:
            member = group.member(asked.member_id)
        else:
            member = known_static(group, asked.instance_id, asked.member_id)
        if asked.epoch == STATIC_LEAVING_EPOCH and asked.instance_id is not None:
            # Its partitions wait for the next member with its instance id, and count as assigned before all epochs.
            assigned = with_epochs(without_epochs(member.assigned), 0)
            away = replace(member, epoch=STATIC_LEAVING_EPOCH, assigned=assigned, pending_revocation={})
            self.groups.append(group.group_id, [current_assignment_record(group.group_id, away)])
        else:
            self.fence(group, [member])
        return {"error_code": NONE, "member_id": asked.member_id, "member_epoch": asked.epoch}

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members from their group. The next heartbeat of another one reassigns their partitions."""
        gone = {member.member_id for member in members}
        left = [member for member in group.members.values() if member.member_id not in gone]
        reason = "the last member of the newer protocol left"
        if may_downgrade(left, self._runtime.config) and self.downgrade(group, left, group.targets, reason):
            return
        new_hash = self.metadata_hash(subscribed_names(left, group.resolved_regexes))
        gone_ids = [member.member_id for member in members]
        self.groups.append(group.group_id, group.departure_records(gone_ids, left, new_hash))

    def downgrade(
        self,
        group: ConsumerGroup,
        members: Iterable[ConsumerMember],
        targets: Mapping[str, Assignment],
        rebalance_reason: str | None,
    ) -> bool:
        """Convert the group to a classic one with these members, which rebalances if there is a reason.

        Returns whether it was converted: that fails if the members have no protocol in common, or if the metadata of
        one of them is not a subscription.
        """
        try:
            classic = downgraded(group, members, targets, self._topics, self._runtime.clock)
        except CorruptRecord as error:
            logger.warning("group %s stays a consumer group: %s", group.group_id, error)
            return False
        records = [*group.tombstones(), classic.record()]
        self.groups.append(group.group_id, records, replay=False)
        self.groups.remove(group.group_id)
        self.groups.by_id[group.group_id] = classic
        for member in classic.members.values():
            self._rebalance.keep_alive(classic, member)
        logger.info("group %s is a classic group now, and was a consumer group", group.group_id)
        if rebalance_reason is not None:
            self._rebalance.begin(classic, rebalance_reason)
        return True


def _is_no_consumer_group(group_id: str) -> str:
    return f"Group {group_id} is not a consumer group."
