"""The target assignment of a group: which assignor computes it, from what, and the records of the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from duralog.broker.groups.consumer.assignors import ASSIGNORS, NO_PARTITIONS, Assignment, Subscriber
from duralog.broker.groups.consumer.group import ConsumerGroup, names_of
from duralog.broker.groups.consumer.member import ConsumerMember
from duralog.broker.groups.consumer.records import target_epoch_record, target_record
from duralog.broker.topics.topics import Topics
from duralog.format.internal.coordinator_records import CoordinatorRecord

_KAFKA_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def offered_assignors(configured: Iterable[str]) -> tuple[str, ...]:
    """The available ones of `group.consumer.assignors`, by name or by Kafka's class; all, if none is."""
    names = [_KAFKA_CLASSES.get(each, each) for each in configured]
    return tuple(name for name in names if name in ASSIGNORS) or tuple(ASSIGNORS)


def preferred_assignor(members: Iterable[ConsumerMember], configured: Iterable[str]) -> str:
    """The assignor that most members ask for; the broker's first one if none does."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in ASSIGNORS)
    return max(ASSIGNORS, key=lambda name: votes[name]) if votes else offered_assignors(configured)[0]


def topic_ids(names: Iterable[str], topics: Topics) -> frozenset[UUID]:
    """Of those topics that exist."""
    views = (topics.by_name(name) for name in names)
    return frozenset(view.topic_id for view in views if view is not None)


def assign(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Assignment],
    assignor: str,
    topics: Topics,
) -> dict[str, Assignment]:
    """The target of each of these members. `members` and `targets` are those of the group after a change.

    They are taken in the order of their ids, so that a loaded group gets the same assignment as before.
    """
    ids_of: dict[frozenset[str], frozenset[UUID]] = {}
    subscribers = []
    for _, member in sorted(members.items()):
        names = names_of(member, group.resolved_regexes)
        if names not in ids_of:
            ids_of[names] = topic_ids(names, topics)
        target = targets.get(member.member_id, NO_PARTITIONS)
        subscribers.append(Subscriber(member.member_id, ids_of[names], target, member.instance_id))
    counts: dict[UUID, int] = {}
    for topic_id in frozenset[UUID]().union(*ids_of.values()):
        view = topics.by_id(topic_id)
        assert view is not None
        counts[topic_id] = len(view.partitions)
    return ASSIGNORS[assignor](subscribers, counts)


def target_records(
    group: ConsumerGroup, assignments: Mapping[str, Assignment], epoch: int, now_ms: int
) -> list[CoordinatorRecord]:
    """What is new in the assignment, and that the target is that of the epoch now."""
    changed = [
        target_record(group.group_id, member_id, assignment)
        for member_id, assignment in assignments.items()
        if assignment != group.targets.get(member_id)
    ]
    return [*changed, target_epoch_record(group.group_id, epoch, now_ms)]
