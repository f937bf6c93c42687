"""The coordinator of consumer groups of the newer protocol: what a heartbeat, a timer or a changed topic leads to.

Every operation works out records and an answer from the groups as they are, appends the records as one batch, and only
then are they in force: `consumer_group_replay` takes them in. If they cannot be appended, nothing has happened, and the
client is told.

A heartbeat does three things, each only if it is needed: it takes in what the member asks for, which may raise the
group's epoch; it makes a target assignment for that epoch; and it takes the member one step towards its target. Members
that are silent too long, or do not give up partitions in time, are put out by timers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from duralog.broker.error_codes import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
)
from duralog.broker.groups.assignors import Assignment
from duralog.broker.groups.classic_group import ClassicGroup
from duralog.broker.groups.consumer_group import ConsumerGroup, names_of, subscribed_names
from duralog.broker.groups.consumer_group_records import (
    current_assignment_record,
    group_epoch_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    subscription_record,
    target_record,
)
from duralog.broker.groups.consumer_group_replay import replay
from duralog.broker.groups.consumer_member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
    with_epochs,
    without_epochs,
)
from duralog.broker.groups.heartbeat_request import HeartbeatRequest
from duralog.broker.groups.metadata_hash import group_hash, topic_hash
from duralog.broker.groups.reconciliation import Reconciliation, Target
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.groups.regex_refresh import RegexChange, RegexRefresh
from duralog.broker.groups.target_assignment import assign, preferred_assignor, target_records, topic_ids
from duralog.broker.topics import TopicView
from duralog.format.coordinator_records import CoordinatorRecord
from duralog.format.uuids import uuid_text
from duralog.storage.cluster_metadata import GROUP_RESOURCE

if TYPE_CHECKING:
    from duralog.broker.groups.coordinator import GroupCoordinator

Fields = dict[str, Any]
_cached_topic_hash: Final = lru_cache(maxsize=4096)(topic_hash)


@dataclass(slots=True)
class _Change:
    """A member's heartbeat under way: what is to be written, and how the group will be."""

    group: ConsumerGroup
    before: ConsumerMember
    """As the group knows it, or as a new one starts."""
    member: ConsumerMember
    replaced: ConsumerMember | None
    """The static member whose place it takes."""
    records: list[CoordinatorRecord]
    regex: RegexChange = field(default_factory=RegexChange)
    is_metadata_fresh: bool = False

    def members(self) -> dict[str, ConsumerMember]:
        """Those of the group after the change."""
        members = {**self.group.members, self.member.member_id: self.member}
        if self.replaced is not None and self.replaced.member_id != self.member.member_id:
            del members[self.replaced.member_id]
        return members

    def targets(self) -> Mapping[str, Assignment]:
        """Those of the group, with the member in the place of the one that it replaces."""
        return {**self.group.targets, self.member.member_id: self.group.target_of(self.member)}


class ConsumerGroups:
    """All consumer groups of the broker, which are in the coordinator's table beside the classic ones."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._broker = coordinator.broker
        self._regexes = RegexRefresh(self)

    # The log

    def replay(self, record: CoordinatorRecord) -> None:
        replay(self._coordinator.by_id, record)

    def loaded(self) -> None:
        """The log was read: give every member its time, and hear of topics from now on."""
        for group in self.all():
            for member in group.members.values():
                self._start_session(group, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._start_revocation(group, member)
        self._regexes.loaded()
        self._broker.topics.on_changed(self._topic_changed)
        self._broker.topics.on_deleted(self._topic_changed)

    def all(self) -> list[ConsumerGroup]:
        return [group for group in self._coordinator.by_id.values() if isinstance(group, ConsumerGroup)]

    def _topic_changed(self, topic: TopicView) -> None:
        for group in self.all():
            if group.is_subscribed_to(topic.name):
                group.request_metadata_refresh()

    # Heartbeats

    def heartbeat(self, asked: HeartbeatRequest) -> Fields:
        """Join, stay, or learn what is new."""
        now_ms = self._broker.clock()
        change = self._start_change(asked)
        group, records = change.group, change.records
        is_new = change.replaced is None and change.member.member_id not in group.members
        if is_new or change.member != change.before:
            records.append(subscription_record(group.group_id, change.member))
        names_changed = change.member.topic_names != change.before.topic_names
        change.regex = self._regexes.change(group, change.before, change.member, now_ms)
        records += change.regex.records
        epoch = self._refresh_metadata(change, must_raise_epoch=names_changed or change.regex.is_resolved)
        target = self._refresh_target(change, epoch, now_ms)
        self._reconcile(change, target, asked.owned, subscription_changed=names_changed or change.regex.is_changed)
        if records:
            self._coordinator.append(group.group_id, records)
        self._settle(change, now_ms)
        answer: Fields = {
            "error_code": 0,
            "member_id": change.member.member_id,
            "member_epoch": change.member.epoch,
            "heartbeat_interval_ms": self._setting(group.group_id, "heartbeat.interval.ms"),
            "assignment": None,
        }
        if asked.epoch == JOINING_EPOCH or asked.is_full or change.member.assigned != change.before.assigned:
            answer["assignment"] = {"topic_partitions": _topic_partitions(change.member)}
        return answer

    def _start_change(self, asked: HeartbeatRequest) -> _Change:
        """Find the group and the member, and take in what the member says of itself."""
        records: list[CoordinatorRecord] = []
        group = self._group_of(asked, records)
        most = self._broker.config.group_consumer_max_size
        if len(group.members) >= most and asked.member_id not in group.members:
            raise GroupRefusal(
                GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {most} members."
            )
        member_id = asked.member_id or uuid_text(uuid.uuid4().bytes)
        replaced = None
        if asked.instance_id is None:
            before = self._dynamic_member(group, asked, member_id)
        else:
            before, replaced = self._static_member(group, asked, member_id)
            if replaced is not None:
                records += _replacement_records(group, replaced, before)
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
        return _Change(group, before, member, replaced, records)

    def _group_of(self, asked: HeartbeatRequest, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group, or a new one for a member that joins, be it in the place of a classic one."""
        group = self._coordinator.by_id.get(asked.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if asked.epoch == JOINING_EPOCH:
            if group is None:
                return ConsumerGroup(asked.group_id)
            if isinstance(group, ClassicGroup) and group.is_empty:
                records += group.tombstones()
                return ConsumerGroup(asked.group_id)
        what = f"Consumer group {asked.group_id} not found." if group is None else _is_no_consumer_group(asked.group_id)
        raise GroupRefusal(GROUP_ID_NOT_FOUND, what)

    def _dynamic_member(self, group: ConsumerGroup, asked: HeartbeatRequest, member_id: str) -> ConsumerMember:
        if asked.epoch == JOINING_EPOCH:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        member = group.member(member_id)
        _check_epoch(member, asked)
        return member

    def _static_member(
        self, group: ConsumerGroup, asked: HeartbeatRequest, member_id: str
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member, and the one before it under the same instance id that it replaces, if there is one."""
        assert asked.instance_id is not None
        known = group.static_member(asked.instance_id)
        if asked.epoch != JOINING_EPOCH:
            known = _known_static(known, asked)
            _check_epoch(known, asked)
            return known, None
        if known is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id), None
        if known.classic is None and known.epoch != STATIC_LEAVING_EPOCH:
            raise GroupRefusal(
                UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {asked.instance_id} cannot join the group because the"
                f" instance id is owned by {known.member_id} member.",
            )
        return replace(known, member_id=member_id, epoch=0, previous_epoch=0), known

    def _refresh_metadata(self, change: _Change, *, must_raise_epoch: bool) -> int:
        """The group's epoch, one more than before if its members want other topics or its topics have changed."""
        group = change.group
        if not must_raise_epoch and not group.is_metadata_stale:
            return group.epoch
        change.is_metadata_fresh = True
        new_hash = self.metadata_hash(subscribed_names(change.members().values(), group.resolved_regexes))
        epoch = group.epoch
        if must_raise_epoch or new_hash != group.metadata_hash:
            epoch += 1
            change.records.append(group_epoch_record(group.group_id, epoch, new_hash))
        if group.has_partition_metadata_record:
            change.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def _refresh_target(self, change: _Change, epoch: int, now_ms: int) -> Target:
        """The member's target: that of a new assignment, if the group needs one and the last is not too recent."""
        group = change.group
        interval_ms = self._setting(group.group_id, "assignment.interval.ms")
        is_due = group.target_made_at_ms == 0 or interval_ms == 0 or now_ms >= group.target_made_at_ms + interval_ms
        if group.target_epoch >= epoch or not is_due:
            return Target(group.target_epoch, group.target_of(change.member))
        members = change.members()
        assignor = preferred_assignor(members.values(), self._broker.config.group_consumer_assignors)
        assignments = assign(group, members, change.targets(), assignor, self._broker.topics)
        change.records += target_records(group, assignments, epoch, now_ms)
        return Target(epoch, assignments[change.member.member_id])

    def _reconcile(
        self, change: _Change, target: Target, owned: Assignment | None, *, subscription_changed: bool
    ) -> None:
        group, member = change.group, change.member
        if not subscription_changed and member.is_reconciled_to(target.epoch):
            return
        reconciliation = Reconciliation(
            target=target,
            subscribed_topics=topic_ids(names_of(member, group.resolved_regexes), self._broker.topics),
            subscription_changed=subscription_changed,
            is_owned=group.is_owned,
            reported=owned,
        )
        change.member = reconciliation.step(member)
        if change.member != member:
            change.records.append(current_assignment_record(group.group_id, change.member))

    def _settle(self, change: _Change, now_ms: int) -> None:
        """The records are in force: let timers run by them."""
        group = self._coordinator.by_id[change.group.group_id]
        assert isinstance(group, ConsumerGroup)
        if change.is_metadata_fresh:
            group.is_metadata_stale = False
        member = change.member
        self._start_session(group, member)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            _cancel(group.rebalance_timers, member.member_id)
        elif (member.epoch, member.pending_revocation) != (change.before.epoch, change.before.pending_revocation):
            self._start_revocation(group, member)
        if change.regex.must_resolve:
            self._regexes.resolve(group, now_ms)

    # Leaving

    def leave(self, asked: HeartbeatRequest) -> Fields:
        group = self.consumer_group(asked.group_id)
        if asked.instance_id is None:
            member = group.member(asked.member_id)
        else:
            member = _known_static(group.static_member(asked.instance_id), asked)
        if asked.epoch == STATIC_LEAVING_EPOCH and asked.instance_id is not None:
            # Its partitions wait for the next member with its instance id, and count as given before all epochs.
            assigned = with_epochs(without_epochs(member.assigned), 0)
            away = replace(member, epoch=STATIC_LEAVING_EPOCH, assigned=assigned, pending_revocation={})
            self._coordinator.append(group.group_id, [current_assignment_record(group.group_id, away)])
        else:
            self.fence(group, [member])
        return {"error_code": 0, "member_id": asked.member_id, "member_epoch": asked.epoch}

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Take members out of their group. The next heartbeat of another one shares out what they had."""
        gone = {member.member_id for member in members}
        left = [member for member in group.members.values() if member.member_id not in gone]
        records = [record for member in members for record in member_tombstones(group.group_id, member.member_id)]
        unused = group.regexes - {member.topic_regex for member in left}
        records += [regex_tombstone(group.group_id, regex) for regex in sorted(unused)]
        new_hash = self.metadata_hash(subscribed_names(left, group.resolved_regexes))
        records.append(group_epoch_record(group.group_id, group.epoch + 1, new_hash))
        self._coordinator.append(group.group_id, records)

    # Timers

    def _start_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if member.classic is None:
            timeout_ms = self._setting(group.group_id, "session.timeout.ms")
        else:
            timeout_ms = member.classic.session_timeout_ms
        self._start_timer(group.session_timers, group.group_id, member, timeout_ms, "its session expired", epoch=None)

    def _start_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        timeout_ms = member.rebalance_timeout_ms
        reason = f"it did not leave epoch {member.epoch} within {timeout_ms} ms"
        self._start_timer(group.rebalance_timers, group.group_id, member, timeout_ms, reason, epoch=member.epoch)

    def _start_timer(
        self,
        timers: dict[str, Any],
        group_id: str,
        member: ConsumerMember,
        timeout_ms: int,
        reason: str,
        *,
        epoch: int | None,
    ) -> None:
        """Put the member out after this time, if it is still there, and in this epoch if one is given."""
        member_id = member.member_id

        def expire() -> None:
            timers.pop(member_id, None)
            group = self._coordinator.by_id.get(group_id)
            known = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
            if known is None or (epoch is not None and known.epoch != epoch):
                return
            assert isinstance(group, ConsumerGroup)
            self._broker.log.info("group %s: member %s is out: %s", group_id, member_id, reason)
            try:
                self.fence(group, [known])
            except GroupRefusal as refusal:
                self._broker.log.warning("group %s: member %s could not be put out: %s", group_id, member_id, refusal)
                self._start_timer(timers, group_id, known, timeout_ms, reason, epoch=epoch)

        _cancel(timers, member_id)
        timers[member_id] = self._broker.timers.after(max(timeout_ms, 0), expire)

    # For whoever asks

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._coordinator.group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupRefusal(GROUP_ID_NOT_FOUND, _is_no_consumer_group(group_id))
        return group

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Of those of the topics that exist."""
        racks = () if self._broker.node.rack is None else (self._broker.node.rack,)
        hashes: dict[str, int] = {}
        for name in names:
            view = self._broker.topics.by_name(name)
            if view is not None:
                hashes[name] = _cached_topic_hash(view.topic_id, name, len(view.partitions), racks)
        return group_hash(hashes)

    def _setting(self, group_id: str, name: str) -> int:
        """What the group sets itself, or else what the broker does for all."""
        own = self._broker.store.configs_of(GROUP_RESOURCE, group_id).get(f"consumer.{name}")
        value: int = self._broker.config.get(f"group.consumer.{name}") if own is None else int(own)
        return value

    @property
    def coordinator(self) -> GroupCoordinator:
        return self._coordinator


def _replacement_records(
    group: ConsumerGroup, replaced: ConsumerMember, member: ConsumerMember
) -> list[CoordinatorRecord]:
    group_id = group.group_id
    return [
        *member_tombstones(group_id, replaced.member_id),
        subscription_record(group_id, member),
        target_record(group_id, member.member_id, group.target_of(member)),
        current_assignment_record(group_id, member),
    ]


def _check_epoch(member: ConsumerMember, asked: HeartbeatRequest) -> None:
    if asked.epoch == member.epoch:
        return
    if asked.epoch > member.epoch:
        difference = "greater"
    elif asked.epoch == member.previous_epoch and _is_part_of(asked.owned, member):
        return  # The answer that told it the new epoch got lost.
    else:
        difference = "smaller"
    raise GroupRefusal(
        FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {difference} member epoch ({asked.epoch}) than the one known by the group"
        f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part_of(owned: Assignment | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        topic in member.assigned and numbers <= member.assigned[topic].keys() for topic, numbers in owned.items()
    )


def _known_static(member: ConsumerMember | None, asked: HeartbeatRequest) -> ConsumerMember:
    if member is None:
        raise GroupRefusal(UNKNOWN_MEMBER_ID, f"Instance id {asked.instance_id} is unknown.")
    if member.member_id != asked.member_id:
        raise GroupRefusal(
            FENCED_INSTANCE_ID,
            f"Static member {asked.member_id} with instance id {asked.instance_id} was fenced by member"
            f" {member.member_id}.",
        )
    return member


def _topic_partitions(member: ConsumerMember) -> list[Fields]:
    return [{"topic_id": topic, "partitions": sorted(numbers)} for topic, numbers in member.assigned.items()]


def _is_no_consumer_group(group_id: str) -> str:
    return f"Group {group_id} is not a consumer group."


def _cancel(timers: dict[str, Any], member_id: str) -> None:
    timer = timers.pop(member_id, None)
    if timer is not None:
        timer.cancel()
