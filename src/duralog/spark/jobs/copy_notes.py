"""What the plan of a cluster's copies says for the report of a job, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.offset_sets import without
from duralog.scanning.cluster.sound_slices import not_there
from duralog.scanning.cluster.sources import ClusterPlan
from duralog.scanning.logs import AnyPlan
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.slices import DataLoss


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


def copy_problems(planned: AnyPlan) -> Iterator[str]:
    """What is wrong with copies, each after the name of its topic."""
    if isinstance(planned, ClusterPlan):
        for each in planned.explained:
            for problem in each.problems:
                yield f"{each.partition.topic}: {problem}"
            if each.end_offset < each.high_watermark:
                yield (
                    f"{each.partition.topic}: partition {each.partition.partition}: consumers were served offsets"
                    f" {each.end_offset} to {each.high_watermark - 1}, and no copy has them: they are read when a"
                    " directory has them"
                )
