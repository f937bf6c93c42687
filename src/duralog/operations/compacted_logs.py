"""The logs that are compacted, or whose compaction is explained, and the progress of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duralog.config import BrokerConfig, TopicConfig
from duralog.config.progress import OnProgress
from duralog.errors import InvalidConfig
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.storage.compaction.report import CompactionProgress
from duralog.storage.log.retention import COMPACT
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsToCompact:
    """The common part of requests to compact and to explain."""

    path: str
    """Of the log directory."""
    choice: Choice = EVERYTHING
    topic_config: Mapping[str, object] = field(default_factory=dict)
    """As if the chosen topics had these configs."""
    config: BrokerConfig = field(default_factory=BrokerConfig)
    memory_bytes: int | None = None
    """For the map of keys. Without it, `log.cleaner.dedupe.buffer.size`."""
    again: bool = False
    """As if nothing had been compacted before, so that old tombstones are removed."""


class NotCompacted(InvalidConfig):
    """A requested topic is not compacted."""

    def __init__(self, topic: str, policy: str) -> None:
        super().__init__(f"{topic} is not compacted, its cleanup.policy is {policy}")


@dataclass(frozen=True, slots=True)
class CompactedLogs:
    compacted: Mapping[TopicPartition, TopicConfig]
    not_compacted: int
    offline: Mapping[TopicPartition, str]
    """Those that cannot be compacted, and why. A topic without metadata counts as compacted: it may be."""


def chosen_logs(store: Store, logs: LogsToCompact) -> CompactedLogs:
    """The chosen partitions that are compacted, with the configs of each."""
    known = set(store.topics())

    def config_of(partition: TopicPartition) -> TopicConfig:
        return store.topic_config(partition.topic).with_overrides(logs.topic_config)

    offline = {
        partition: reason
        for partition, reason in logs.choice.offline(store).items()
        if partition.topic not in known or COMPACT in config_of(partition).cleanup_policy
    }
    configs = {partition: config_of(partition) for partition in logs.choice.partitions(store)}
    compacted = {partition: config for partition, config in configs.items() if COMPACT in config.cleanup_policy}
    if logs.choice.topics is not None and configs and not compacted and not offline:
        partition, config = next(iter(configs.items()))
        raise NotCompacted(partition.topic, config.text("cleanup.policy") or "empty")
    return CompactedLogs(compacted, len(configs) - len(compacted), offline)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """A `Progress`: of one partition's compaction, with its place among all."""

    partition: TopicPartition
    number: int
    """Counted from 1."""
    partitions: int
    compaction: CompactionProgress
    start: CompactionProgress
    """The first one of this step."""
    is_dry_run: bool

    unit = None

    @property
    def step(self) -> tuple[object, ...]:
        return self.number, *self.compaction.step

    @property
    def label(self) -> str:
        number = f"{self.number}/{self.partitions} " if self.partitions > 1 else ""
        label = self.compaction.label
        return (
            f"{number}{self.partition} {label.replace(self.compaction.phase, 'reading') if self.is_dry_run else label}"
        )

    @property
    def done(self) -> int:
        return self.compaction.bytes_done

    @property
    def total(self) -> int:
        return self.compaction.bytes_total

    @property
    def detail(self) -> str:
        # Records are counted over all rounds; those of this one are shown.
        read = self.compaction.records_read - self.start.records_read
        kept = self.compaction.records_kept - self.start.records_kept
        return f"{self.compaction.detail}, kept {kept:,} of {read:,}" if read else self.compaction.detail


class CompactionMeter:
    """Adds the position among all logs to the progress of one log."""

    def __init__(self, partitions: int, on_progress: OnProgress, *, is_dry_run: bool = False) -> None:
        self._partitions = partitions
        self._on_progress = on_progress
        self._is_dry_run = is_dry_run
        self._number = 0
        self._partition = TopicPartition("", 0)
        self._start: CompactionProgress | None = None

    def begin(self, partition: TopicPartition) -> None:
        self._number += 1
        self._partition = partition
        self._start = None

    def show(self, progress: CompactionProgress) -> None:
        if self._start is None or progress.step != self._start.step:
            self._start = progress
        self._on_progress(
            PartitionProgress(
                partition=self._partition,
                number=self._number,
                partitions=self._partitions,
                compaction=progress,
                start=self._start,
                is_dry_run=self._is_dry_run,
            )
        )
