"""Which topics are restored, with what configs, and which bytes of which copies are read for that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from duralog.errors import InvalidConfig, UnknownTopic
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.topic_partition import TopicPartition
from duralog.operations.restore.coordinators import CoordinatorTopic
from duralog.operations.restore.partition_copy import PartitionSource
from duralog.scanning.cluster.cluster import Cluster, Copies
from duralog.scanning.cluster.problems import Problem
from duralog.scanning.cluster.sources import HealedRange, plan_cluster
from duralog.scanning.slices import Slice
from duralog.storage.metadata.topics import MovedTopic

_KEEP_FOR_EVER: Mapping[str, str] = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    moved: MovedTopic
    knows_configs: bool
    sources: tuple[PartitionSource, ...]
    missing: tuple[tuple[int, str], ...]
    """Partitions without a copy that can be read, and why."""


def chosen_topics(cluster: Cluster, patterns: Sequence[str]) -> list[str]:
    """The topics that have one of these names or match one of the patterns; without any, all but Kafka's own."""
    known = cluster.topics()
    found: dict[str, None] = {}
    for pattern in patterns or ["*"]:
        if pattern in INTERNAL_TOPICS:
            raise InvalidConfig(
                f"{pattern} cannot be restored: committed offsets of restored topics come by themselves, and the rest"
                " of Kafka's own topics belongs to the old cluster"
            )
        matching = [name for name in known if fnmatchcase(name, pattern) and name not in INTERNAL_TOPICS]
        if not matching:
            raise UnknownTopic(
                f"{cluster.path}: there is no topic {pattern}"
                if patterns
                else f"{cluster.path}: there is no topic in it but Kafka's own"
            )
        found.update(dict.fromkeys(matching))
    return sorted(found)


def plan_topics(cluster: Cluster, names: Iterable[str], *, to_end: bool) -> list[TopicPlan]:
    numbers = {name: _numbers(cluster, name) for name in names}
    found, unreadable = _sources(cluster, numbers, to_end=to_end)
    return [_topic_plan(cluster, name, numbers[name], found[name], unreadable[name]) for name in sorted(numbers)]


def plan_coordinator(cluster: Cluster, name: str, *, to_end: bool) -> tuple[CoordinatorTopic, list[str]]:
    """The partitions of one of Kafka's own topics, and what cannot be read of it."""
    if name not in cluster.topics():
        return CoordinatorTopic((), 0), []
    wanted = _numbers(cluster, name)
    found, unreadable = _sources(cluster, {name: wanted}, to_end=to_end)
    topic = CoordinatorTopic(
        tuple(each for each in found[name] if each.start_offset < each.end_offset),
        max(wanted) + 1,
        knows_partitions=cluster.metadata is not None and name in cluster.metadata.topics,
    )
    missing = {**_missing(wanted, found[name]), **unreadable[name]}
    return topic, [f"{name}-{number}: {reason}" for number, reason in sorted(missing.items())]


def _numbers(cluster: Cluster, name: str) -> range:
    """The partitions that the topic has, by its metadata and by the folders that are there."""
    topic = None if cluster.metadata is None else cluster.metadata.topics.get(name)
    return range(max([*cluster.partitions(name), *(() if topic is None else topic.partitions)]) + 1)


def _sources(
    cluster: Cluster, numbers: Mapping[str, Iterable[int]], *, to_end: bool
) -> tuple[dict[str, list[PartitionSource]], dict[str, dict[int, str]]]:
    there = set(cluster.all_partitions())
    wanted = [
        partition
        for name, each in numbers.items()
        for number in each
        if (partition := TopicPartition(name, number)) in there
    ]
    copies: list[Copies] = []
    unreadable: dict[str, dict[int, str]] = defaultdict(dict)
    for partition, loaded in zip(wanted, cluster.load(wanted), strict=True):
        if isinstance(loaded, Problem):
            unreadable[partition.topic][partition.partition] = loaded.text
        else:
            copies.append(loaded)
    plan = plan_cluster(cluster, [each.partition for each in copies], to_end=to_end)
    slices: dict[TopicPartition, list[Slice]] = defaultdict(list)
    for part in plan.slices:
        slices[TopicPartition(part.topic, part.partition)].append(part)
    healed: dict[TopicPartition, list[HealedRange]] = defaultdict(list)
    for each in plan.healed:
        healed[TopicPartition(each.topic, each.partition)].append(each)
    found: dict[str, list[PartitionSource]] = defaultdict(list)
    for known in copies:
        choice = known.choice
        end = max(choice.end_offset, choice.high_watermark) if to_end else choice.high_watermark
        found[known.partition.topic].append(
            PartitionSource(
                partition=known.partition,
                copies=known,
                slices=tuple(slices[known.partition]),
                start_offset=choice.start_offset,
                end_offset=max(end, choice.start_offset),
                healed=tuple(healed[known.partition]),
                mixed=next((each for each in plan.mixed if each.place == known.partition), None),
            )
        )
    return found, unreadable


def _topic_plan(
    cluster: Cluster,
    name: str,
    numbers: range,
    sources: Sequence[PartitionSource],
    unreadable: Mapping[int, str],
) -> TopicPlan:
    metadata = cluster.metadata
    registered = None if metadata is None else metadata.topics.get(name)
    ids = {source.copies.chosen.topic_id for source in sources} - {None}
    topic_id = next(iter(ids), None)
    is_registered = registered is not None and topic_id in (None, registered.topic_id)
    configs: Mapping[str, str] = _KEEP_FOR_EVER
    if is_registered:
        assert metadata is not None
        assert registered is not None
        topic_id, configs = registered.topic_id, metadata.topic_configs(name)
    return TopicPlan(
        moved=MovedTopic(
            name=name,
            topic_id=topic_id,
            partitions=len(numbers),
            configs=dict(configs),
            leader_epochs={source.partition.partition: _next_epoch(source.copies) for source in sources},
        ),
        knows_configs=is_registered,
        sources=tuple(sources),
        missing=tuple(sorted({**_missing(numbers, sources), **unreadable}.items())),
    )


def _missing(numbers: Iterable[int], sources: Sequence[PartitionSource]) -> dict[int, str]:
    there = {source.partition.partition for source in sources}
    return {number: "no directory has a copy" for number in numbers if number not in there}


def _next_epoch(copies: Copies) -> int:
    """Above all epochs that a client may have seen."""
    known = [copy.state.last_epoch for copy in copies.copies]
    if copies.registration is not None:
        known.append(copies.registration.leader_epoch)
    return max(known) + 1
