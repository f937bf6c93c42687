"""Groups that change between the classic and the newer protocol while they have members.

A classic group of consumers becomes a consumer group when the first member joins that speaks the newer protocol: all
its members stay, with what they own, and have to join again. A consumer group becomes a classic one when the last
member leaves that speaks the newer protocol. `group.consumer.migration.policy` says which of the two is allowed. One
batch replaces one group by the other, so that there is never a moment with both or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from uuid import UUID

from duralog.broker.groups.classic.group import ClassicGroup, ClassicState
from duralog.broker.groups.classic.members import ClassicMember
from duralog.broker.groups.consumer.assignors import NO_PARTITIONS, Assignment
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.member import ClassicMetadata, ConsumerMember, with_epochs
from duralog.broker.groups.consumer.records import (
    current_assignment_record,
    group_epoch_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from duralog.broker.groups.consumer_protocol import PROTOCOL_TYPE
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import GROUP_ID_NOT_FOUND
from duralog.config import BrokerConfig
from duralog.errors import CorruptRecord
from duralog.format.internal.coordinator_records import CoordinatorRecord
from duralog.format.internal.embedded_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    decode_embedded,
    embedded_version,
    encode_embedded,
)

_UPGRADES = ("bidirectional", "upgrade")
_DOWNGRADES = ("bidirectional", "downgrade")
DISABLED = "disabled"


def policy(config: BrokerConfig) -> str:
    return config.group_consumer_migration_policy.lower()


def check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    """Refuse with Kafka's reasons that a classic group with members becomes a consumer group."""
    if policy(config) not in _UPGRADES:
        reason = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _cannot_upgrade(group, reason)


def may_downgrade(members: Collection[ConsumerMember], config: BrokerConfig) -> bool:
    """Whether a consumer group that comes to have these members becomes a classic one: all speak that protocol."""
    return (
        bool(members)
        and all(member.classic is not None for member in members)
        and policy(config) in _DOWNGRADES
        and len(members) <= config.group_max_size
    )


def upgraded(group: ClassicGroup, topics: Topics, metadata_hash: Callable[[Iterable[str]], int]) -> ConsumerGroup:
    """The same members as a consumer group, in the epoch of the classic group's generation."""
    new = ConsumerGroup(group.group_id)
    new.epoch = new.target_epoch = group.generation
    for member in group.members.values():
        try:
            assigned = _assignment_of(group, member, topics)
            subscription = decode_embedded(SUBSCRIPTION, _subscription_of(group, member))
        except CorruptRecord:
            raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
        new.targets[member.member_id] = assigned
        new.update_member(
            ConsumerMember(
                member_id=member.member_id,
                epoch=group.generation,
                previous_epoch=group.generation,
                instance_id=member.instance_id,
                rack_id=subscription.get("rack_id") or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_names=frozenset(subscription["topics"]),
                assigned=with_epochs(assigned, group.generation),
                classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
            )
        )
    new.metadata_hash = metadata_hash(new.topic_names)
    return new


def whole_group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """All that is to be known of a consumer group that is not in the log yet."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(subscription_record(group_id, member) for member in members),
        group_epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, member_id, target) for member_id, target in group.targets.items()),
        target_epoch_record(group_id, group.target_epoch, group.target_made_at_ms),
        *(current_assignment_record(group_id, member) for member in members),
    ]


def downgraded(
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    targets: Mapping[str, Assignment],
    topics: Topics,
    clock: Callable[[], int],
) -> ClassicGroup:
    """These members as a stable classic group. REQUIRES: all speak the classic protocol.

    Raises CorruptRecord if they have no protocol in common, or if what a member has sent for it is not a subscription.
    """
    new = ClassicGroup(
        group.group_id,
        clock,
        state=ClassicState.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        state_timestamp_ms=clock(),
    )
    for member in members:
        assert member.classic is not None
        new.add(
            ClassicMember(
                member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=list(member.classic.supported_protocols),
            ),
            PROTOCOL_TYPE,
        )
    new.protocol_name = new.choose_protocol()
    new.learn_subscriptions()
    for classic in new.members.values():
        target = targets.get(classic.member_id, NO_PARTITIONS)
        classic.assignment = embedded_assignment(target, classic.metadata(new.protocol_name), topics)
    return new


def embedded_assignment(assignment: Assignment, subscription: bytes, topics: Topics) -> bytes:
    """An assignment for a member that speaks the classic protocol, in the version of its subscription."""
    assigned = []
    for topic_id, numbers in assignment.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            assigned.append({"topic": topic.name, "partitions": sorted(numbers)})
    fields = {"assigned_partitions": assigned, "user_data": None}
    return encode_embedded(ASSIGNMENT, embedded_version(subscription), fields)


def by_topic_id(topic_partitions: Iterable[Mapping[str, object]], topics: Topics) -> Assignment:
    """Partitions that a member names by their topics' names. Topics that are gone are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for each in topic_partitions:
        topic = topics.by_name(str(each["topic"]))
        numbers = each["partitions"]
        assert isinstance(numbers, list)
        if topic is not None and numbers:
            found[topic.topic_id] = frozenset(numbers)
    return found


def _subscription_of(group: ClassicGroup, member: ClassicMember) -> bytes:
    """What it says for the group's protocol.

    While the group rebalances it may not have one yet, and a new member may not know the old one: then it is what the
    member says for the protocol that it likes best.
    """
    names = member.protocol_names
    return member.metadata(group.protocol_name if group.protocol_name in names else names[0])


def _assignment_of(group: ClassicGroup, member: ClassicMember, topics: Topics) -> Assignment:
    if not member.assignment:
        return NO_PARTITIONS  # It has joined, and never asked for its assignment.
    assignment = decode_embedded(ASSIGNMENT, member.assignment)
    if assignment["user_data"]:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade",
        )
    return by_topic_id(assignment["assigned_partitions"], topics)


def _cannot_upgrade(group: ClassicGroup, reason: str) -> GroupRefusal:
    return GroupRefusal(
        GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    )
