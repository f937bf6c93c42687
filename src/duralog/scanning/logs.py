"""The logs of one directory, or of all directories of a cluster, with one interface.

    with LogSet.of(["backup/broker-1/data", "backup/broker-2/data"]).open() as logs:
        ranges = logs.resolve(select_partitions(logs, topics=["orders"]))
        tasks = logs.plan(ranges).tasks

In a cluster, a partition is the copy that consumers were served (`duralog.scanning.cluster`): it ends at the high
watermark, or at its end with `to_end`. Its slices list the other copies, so that a task can read damaged batches from
them.

Nothing is written. Open logs do not change: open them again to see newer records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import CorruptRecord, DuralogError, StorageError
from duralog.format.checkpoints import EpochStart
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.directories import Paths, is_of_cluster
from duralog.scanning.cluster.problems import Problem
from duralog.scanning.cluster.served import ServedLogs
from duralog.scanning.cluster.sources import ClusterPlan
from duralog.scanning.locations import Location, location_of
from duralog.scanning.offset_ranges import (
    FROM_EARLIEST,
    TO_LATEST,
    Bound,
    OffsetRange,
    OnDataLoss,
    TopicSource,
    resolve,
)
from duralog.scanning.planning import DEFAULT_MAX_SLICE_BYTES, Plan, plan
from duralog.scanning.remembered_objects import ExportedObjects
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store

AnyPlan = Plan | ClusterPlan


class Logs(TopicSource, Protocol):
    """Open logs. Use it as a context manager."""

    @property
    def locations(self) -> tuple[Location, ...]: ...

    @property
    def is_remote(self) -> bool: ...

    @property
    def cluster_id(self) -> str | None:
        """By `meta.properties`."""

    @property
    def problems(self) -> Sequence[Problem]:
        """Of the directories of a cluster."""

    @property
    def missing_partitions(self) -> Sequence[TopicPartition]:
        """Those of the cluster metadata of which no directory has a copy."""

    @property
    def has_configs(self) -> bool:
        """Whether the cluster metadata is there. Without it, configs of topics are the defaults."""

    def location(self, partition: TopicPartition) -> Location:
        """The directory that the partition is read from."""

    def log(self, partition: TopicPartition) -> PartitionLog:
        """The log in that directory. In a cluster, it may go beyond what consumers were served."""

    def topic_id(self, topic: str) -> str | None: ...

    def topic_config(self, topic: str) -> TopicConfig: ...

    def history(self, partition: TopicPartition) -> tuple[EpochStart, ...] | None:
        """The leader epochs of a partition of a cluster, by which another history is noticed."""

    def views_with(self, partition: TopicPartition, offset: int) -> Iterator[LogView]:
        """The copies of the log that have this offset: first the one that is read."""

    def start_offset(self, partition: TopicPartition) -> int:
        """The first offset that a copy has."""

    def end_offset(self, partition: TopicPartition) -> int:
        """Where the log ends, with records that consumers were not served yet."""

    def refusal(self, partition: TopicPartition) -> str | None:
        """Why the partition cannot be opened."""

    def resolve(
        self,
        partitions: Iterable[TopicPartition],
        start: Bound = FROM_EARLIEST,
        end: Bound = TO_LATEST,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        on_data_loss: OnDataLoss | None = None,
    ) -> dict[TopicPartition, OffsetRange]:
        """See `offset_ranges.resolve`."""

    def plan(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_slice_bytes: int = DEFAULT_MAX_SLICE_BYTES,
        min_slices: int | None = None,
        times: TimeRange = ANY_TIME,
        on_data_loss: OnDataLoss | None = None,
    ) -> AnyPlan:
        """See `planning.plan`."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class DirectoryLogs:
    """Those of one directory. REQUIRES: the store is read-only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path = store.path
        self._location = location_of(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._store.close()

    @property
    def locations(self) -> tuple[Location, ...]:
        return (self._location,)

    @property
    def is_remote(self) -> bool:
        return self._location.is_remote

    @property
    def cluster_id(self) -> str | None:
        return self._store.cluster_id

    @property
    def problems(self) -> Sequence[Problem]:
        return ()

    @property
    def missing_partitions(self) -> Sequence[TopicPartition]:
        return ()

    @property
    def has_configs(self) -> bool:
        try:
            self._store.partition(*METADATA_PARTITION)
        except DuralogError:
            return False
        return True

    def topics(self) -> list[str]:
        return self._store.topics()

    def partitions(self, topic: str) -> list[int]:
        return self._store.partitions(topic)

    def location(self, _: TopicPartition) -> Location:
        return self._location

    def log(self, partition: TopicPartition) -> PartitionLog:
        return self._store.partition(*partition)

    def topic_id(self, topic: str) -> str | None:
        return self._store.topic_id(topic)

    def topic_config(self, topic: str) -> TopicConfig:
        return self._store.topic_config(topic)

    def history(self, _: TopicPartition) -> None:
        return None

    def views_with(self, partition: TopicPartition, offset: int) -> Iterator[LogView]:
        view = self.log(partition).view
        if view.start_offset <= offset < view.end_offset:
            yield view

    def start_offset(self, partition: TopicPartition) -> int:
        return self.log(partition).start_offset

    def end_offset(self, partition: TopicPartition) -> int:
        return self.log(partition).end_offset

    def refusal(self, partition: TopicPartition) -> str | None:
        try:
            self.log(partition).view.segments.active.let_go()
        except (CorruptRecord, StorageError) as error:
            if self.is_remote and isinstance(error, StorageError):
                raise
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
        return resolve(self._store, partitions, start, end, isolation=isolation, on_data_loss=on_data_loss)

    def plan(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_slice_bytes: int = DEFAULT_MAX_SLICE_BYTES,
        min_slices: int | None = None,
        times: TimeRange = ANY_TIME,
        on_data_loss: OnDataLoss | None = None,
    ) -> Plan:
        return plan(
            self._store,
            ranges,
            isolation=isolation,
            max_slice_bytes=max_slice_bytes,
            min_slices=min_slices,
            times=times,
            on_data_loss=on_data_loss,
        )


RememberedObjects = tuple[tuple[Location, ExportedObjects], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSet:
    """The directories, as a user names them. Relative paths are those of the process that opens it."""

    paths: tuple[str, ...]
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold secrets, so they are not shown."""
    is_cluster: bool = False
    to_end: bool = False
    """Of a cluster: also what is above the high watermark."""

    @classmethod
    def of(
        cls,
        path: Paths,
        storage_options: Mapping[str, str] | None = None,
        *,
        is_cluster: bool | None = None,
        to_end: bool = False,
    ) -> LogSet:
        """A list, a glob or a manifest is a cluster, unless `is_cluster` says otherwise."""
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        return cls(
            paths=tuple(os.fspath(each) for each in paths),
            storage_options=storage_options or {},
            is_cluster=is_of_cluster(path) if is_cluster is None else is_cluster,
            to_end=to_end,
        )

    def __str__(self) -> str:
        return ", ".join(self.paths)

    def open(self, config: BrokerConfig | None = None, remembered: RememberedObjects = ()) -> Logs:
        """For reading. `config` is what `server.properties` sets; `remembered` need not be read again."""
        for location, objects in remembered:
            location.remember(objects)
        if self.is_cluster:
            return ServedLogs(open_cluster(self.paths, self.storage_options), config=config, to_end=self.to_end)
        return DirectoryLogs(Location.of(self.paths[0], self.storage_options).open_store(config, only_to_plan=True))


def remembered_objects(locations: Sequence[Location]) -> RememberedObjects:
    """What was read to open them, for a process that opens them again; nothing if they are not on an object store."""
    found = ((location, location.remembered_objects()) for location in locations)
    return tuple((location, objects) for location, objects in found if objects is not None)
