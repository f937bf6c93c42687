"""What the plan of a cluster's copies says for the report of a job, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from duralog.config.plurals import plural
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.offset_sets import without
from duralog.scanning.cluster.sound_slices import not_there
from duralog.scanning.cluster.sources import ClusterPlan
from duralog.scanning.logs import AnyPlan, Logs
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.slices import DataLoss

_MOST_NAMED = 10


def planned_from_others(planned: AnyPlan) -> tuple[str, ...]:
    """Offsets that the copies that count have not, and that are planned from others."""
    return tuple(map(str, planned.healed)) if isinstance(planned, ClusterPlan) else ()


def planned_losses(planned: AnyPlan, ranges: Mapping[TopicPartition, OffsetRange]) -> Iterator[DataLoss]:
    """Offsets between those that any copy has, although no cleaner has removed them. Tasks may find more."""
    if not isinstance(planned, ClusterPlan):
        return
    covered: dict[TopicPartition, list[tuple[int, int]]] = {}
    for found in planned.slices:
        partition = TopicPartition(found.topic, found.partition)
        covered.setdefault(partition, []).append((found.start_offset, found.end_offset - 1))
    for partition, (start, end) in ranges.items():
        whole_from = planned.sources[partition].whole_from
        if whole_from is None or max(start, whole_from) >= end:
            continue
        for first, last in without((max(start, whole_from), end - 1), covered.get(partition, ())):
            yield not_there(partition, first, last)


def missing_topics(logs: Logs, topics: Sequence[str] | None) -> Iterator[str]:
    """Topics of which no directory has any partition, if all topics are wanted."""
    there = {*logs.topics(), *INTERNAL_TOPICS}
    for topic in sorted({partition.topic for partition in logs.missing_partitions} - there):
        if topics is None:
            yield f"{topic}: the cluster metadata has this topic, and no directory a copy: give all directories"


def missing_partitions(logs: Logs, topic: str) -> Iterator[str]:
    """Those of a topic that has other partitions here."""
    numbers = sorted(partition.partition for partition in logs.missing_partitions if partition.topic == topic)
    if numbers:
        named = ", ".join(map(str, numbers[:_MOST_NAMED])) + (", ..." if len(numbers) > _MOST_NAMED else "")
        yield (
            f"{topic}: the cluster metadata has {plural(len(numbers), 'partition')} without a copy here, which could"
            f" not be read: {named}. Give all directories"
        )


def copy_problems(planned: AnyPlan) -> Iterator[str]:
    """What is wrong with copies, each after the name of its topic."""
    if isinstance(planned, ClusterPlan):
        for part in planned.mixed:
            yield f"{part.topic}: {part}"
        for each in planned.explained:
            for problem in each.problems:
                yield f"{each.partition.topic}: {problem}"
            if each.end_offset < each.high_watermark:
                yield (
                    f"{each.partition.topic}: partition {each.partition.partition}: consumers were served offsets"
                    f" {each.end_offset} to {each.high_watermark - 1}, and no copy has them: they are read when a"
                    " directory has them"
                )
