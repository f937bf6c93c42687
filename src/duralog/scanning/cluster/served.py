"""What consumers of a cluster were served, as if it were the logs of one directory (`duralog.scanning.logs`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError
from duralog.format.checkpoints import EpochStart
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import CopyState, Part, divergence
from duralog.scanning.cluster.cluster import Cluster, Copies
from duralog.scanning.cluster.problems import Problem
from duralog.scanning.cluster.served_parts import served_parts
from duralog.scanning.cluster.sources import ClusterPlan, loaded, plan_ranges
from duralog.scanning.locations import Location
from duralog.scanning.offset_ranges import FROM_EARLIEST, TO_LATEST, Bound, OffsetRange, OnDataLoss, resolve_in
from duralog.scanning.planning import DEFAULT_MAX_SLICE_BYTES
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView


class ServedLogs:
    """Every partition is the copy that consumers were served, up to the high watermark or, with `to_end`, its end."""

    def __init__(self, cluster: Cluster, *, config: BrokerConfig | None = None, to_end: bool = False) -> None:
        self._cluster = cluster
        self._config = config
        self._to_end = to_end
        self.path = cluster.path
        self.locations: tuple[Location, ...] = tuple(directory.location for directory in cluster.directories)
        self.is_remote = cluster.is_remote
        self.has_configs = cluster.metadata is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    @property
    def problems(self) -> Sequence[Problem]:
        """Of directories."""
        return self._cluster.problems

    @property
    def cluster_id(self) -> str | None:
        return self._cluster.cluster_id

    @property
    def missing_partitions(self) -> Sequence[TopicPartition]:
        return [partition for partition, _ in self._cluster.missing_partitions()]

    def topics(self) -> list[str]:
        return self._cluster.topics()

    def partitions(self, topic: str) -> list[int]:
        return self._cluster.partitions(topic)

    def location(self, partition: TopicPartition) -> Location:
        return self._cluster.copies(partition).chosen.directory.location

    def log(self, partition: TopicPartition) -> PartitionLog:
        return self._cluster.copies(partition).chosen.log

    def topic_id(self, topic: str) -> str | None:
        for number in self.partitions(topic):
            with suppress(DuralogError):
                return self._cluster.copies(TopicPartition(topic, number)).topic_id
        return None

    def topic_config(self, topic: str) -> TopicConfig:
        """By the newest cluster metadata; the defaults without any."""
        config = (self._config or BrokerConfig()).topic_defaults()
        metadata = self._cluster.metadata
        return config if metadata is None else config.with_stored(metadata.topic_configs(topic))

    def history(self, partition: TopicPartition) -> tuple[EpochStart, ...] | None:
        return self._cluster.copies(partition).choice.epochs

    def views_with(self, partition: TopicPartition, offset: int) -> Iterator[LogView]:
        copies = self._cluster.copies(partition)
        for number in copies.order:
            view = copies.copies[number].view
            if view.start_offset <= offset < min(copies.choice.agreed[number], view.end_offset):
                yield view

    def start_offset(self, partition: TopicPartition) -> int:
        return _Served(self._cluster.copies(partition), Isolation.READ_UNCOMMITTED, to_end=True).start_offset

    def end_offset(self, partition: TopicPartition) -> int:
        return self._cluster.copies(partition).choice.end_offset

    def refusal(self, partition: TopicPartition) -> str | None:
        try:
            self._cluster.copies(partition)
        except DuralogError as error:
            return str(error)
        return None

    def resolve(
        self,
        partitions: Iterable[TopicPartition],
        start: Bound = FROM_EARLIEST,
        end: Bound = TO_LATEST,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        on_data_loss: OnDataLoss | None = None,
    ) -> dict[TopicPartition, OffsetRange]:
        found = {copies.partition: copies for copies in loaded(self._cluster, partitions)}

        def bounded(partition: TopicPartition) -> _Served:
            return _Served(found[partition], isolation, to_end=self._to_end)

        return resolve_in(bounded, found, start, end, is_remote=self.is_remote, on_data_loss=on_data_loss)

    def plan(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_slice_bytes: int = DEFAULT_MAX_SLICE_BYTES,
        min_slices: int | None = None,
        times: TimeRange = ANY_TIME,
        on_data_loss: OnDataLoss | None = None,
    ) -> ClusterPlan:
        return plan_ranges(
            self._cluster,
            ranges,
            isolation=isolation,
            max_slice_bytes=max_slice_bytes,
            min_slices=min_slices,
            times=times,
            on_data_loss=on_data_loss,
        )


class _Served:
    """The bounds of a partition (`offset_ranges.BoundedLog`)."""

    def __init__(self, copies: Copies, isolation: Isolation, *, to_end: bool) -> None:
        self._copies = copies
        self._isolation = isolation
        self._parts: list[Part] = served_parts(copies, isolation, to_end=to_end)
        start = copies.choice.start_offset
        self.start_offset = self._parts[0].start_offset if self._parts else start
        self.limit = self._parts[-1].end_offset if self._parts else start

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        for part in self._parts:
            found = self._copies.copies[part.copy].log.offset_for_timestamp(timestamp_ms, isolation=self._isolation)
            if found is not None and found.offset < part.end_offset:
                return max(found.offset, part.start_offset)
        return None

    def let_go(self) -> None:
        for part in self._parts:
            self._copies.copies[part.copy].view.segments.active.let_go()


def diverged_at(before: Sequence[EpochStart], now: Sequence[EpochStart]) -> int | None:
    """The first offset that may have other records now than in an earlier history; None if there is none.

    As a consumer finds truncation (KIP-320): by where the last leader epoch that both have ends.
    """
    if tuple(before) == tuple(now):
        return None
    old, new = (CopyState(node_id=None, start_offset=0, end_offset=0, epochs=tuple(each)) for each in (before, now))
    return divergence(old, new)
