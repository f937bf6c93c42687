"""What a scan reads: the topics and partitions that are wanted, of one directory or a cluster, as slices.

A query that wants a part of a planned scan narrows its plan: it reads the same offsets, or fewer.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.directories import Paths, is_of_cluster
from duralog.scanning.cluster.sources import ClusterPlan, HealedRange, plan_cluster, plan_ranges
from duralog.scanning.locations import open_store
from duralog.scanning.offset_ranges import OffsetRange, TopicSource, resolve
from duralog.scanning.planning import Plan, plan
from duralog.scanning.row_bounds import RowBounds
from duralog.scanning.time_range import TimeRange
from duralog.scanning.topic_choice import partitions_by_topic
from duralog.schemas.decode_options import Decode
from duralog.storage.log.isolation import Isolation

SLICE_BYTES = 8 << 20

OnHealed = Callable[[HealedRange], None]
ScanPlan = Plan | ClusterPlan

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to read, and how."""

    path: Paths
    topics: Sequence[str] | None
    partition: int | None
    columns: tuple[str, ...] | None
    times: TimeRange
    where: str | None
    decode: Decode | None
    isolation: Isolation
    storage_options: Mapping[str, str] | None
    threads: int
    to_end: bool
    on_healed: OnHealed

    def partitions(self, store: TopicSource) -> dict[str, list[TopicPartition]]:
        schemas_topic = None if self.decode is None else self.decode.schemas_topic
        return partitions_by_topic(store, self.topics, self.partition, schemas_topic=schemas_topic)


def plan_scan(wanted: Wanted) -> tuple[ScanPlan, list[str]]:
    """The slices of all that is wanted, up to where it ends now, and the topics."""
    if is_of_cluster(wanted.path):
        with open_cluster(wanted.path, wanted.storage_options) as cluster:
            for problem in cluster.problems:
                _logger.warning("%s", problem)
            chosen = wanted.partitions(cluster)
            planned: ScanPlan = plan_cluster(
                cluster,
                list(chain.from_iterable(chosen.values())),
                isolation=wanted.isolation,
                times=wanted.times,
                max_slice_bytes=SLICE_BYTES,
                to_end=wanted.to_end,
            )
            return planned, list(chosen)
    assert isinstance(wanted.path, str | os.PathLike)
    with open_store(os.fspath(wanted.path), wanted.storage_options) as store:
        chosen = wanted.partitions(store)
        ranges = resolve(store, list(chain.from_iterable(chosen.values())), isolation=wanted.isolation)
        planned = plan(store, ranges, isolation=wanted.isolation, max_slice_bytes=SLICE_BYTES, times=wanted.times)
        return planned, list(chosen)


def planned_ranges(planned: ScanPlan) -> dict[TopicPartition, OffsetRange]:
    """The offsets of a plan's slices."""
    found: dict[TopicPartition, OffsetRange] = {}
    for each in chain.from_iterable(planned.tasks):
        partition = TopicPartition(each.topic, each.partition)
        known = found.get(partition, OffsetRange(each.start_offset, each.end_offset))
        start, end = min(known.start_offset, each.start_offset), max(known.end_offset, each.end_offset)
        found[partition] = OffsetRange(start, end)
    return found


class WantedPart(Protocol):
    """What a query wants of a scan: rows within the bounds, of some partitions."""

    bounds: RowBounds

    def partitions(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of them that are wanted."""


def narrowed_plan(wanted: Wanted, planned: ScanPlan, part: WantedPart) -> ScanPlan:
    """The slices of a plan that may have rows of a part of it."""
    found = planned_ranges(planned)
    ranges = part.bounds.narrow(found, part.partitions(found).__contains__)
    times = wanted.times.narrowed(part.bounds.times)
    if is_of_cluster(wanted.path):
        with open_cluster(wanted.path, wanted.storage_options) as cluster:
            return plan_ranges(cluster, ranges, isolation=wanted.isolation, times=times, max_slice_bytes=SLICE_BYTES)
    assert isinstance(wanted.path, str | os.PathLike)
    with open_store(os.fspath(wanted.path), wanted.storage_options) as store:
        return plan(store, ranges, isolation=wanted.isolation, max_slice_bytes=SLICE_BYTES, times=times)
