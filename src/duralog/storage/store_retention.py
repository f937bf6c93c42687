"""Retention over all logs of a store, on request and in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Clock, Scheduler
from duralog.storage.held_records import HeldRecords
from duralog.storage.log.log_retention import retain
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import Removal, RetentionPolicy, RetentionReport
from duralog.storage.open_logs import OpenLogs
from duralog.storage.opened_store import OpenedStore
from duralog.storage.upkeep import Upkeep

_MOST_NAMED = 20
"""The most partitions that a background error names: on a bad disk it may be all of them, again and again."""


class StoreRetention:
    """Any thread may call any method."""

    def __init__(
        self,
        opened: OpenedStore,
        logs: OpenLogs,
        find_log: Callable[[TopicPartition], PartitionLog],
        upkeep: Upkeep,
        scheduler: Scheduler,
        policies: Sequence[RetentionPolicy],
        clock: Clock,
    ) -> None:
        """`policies` are those that the store was opened with. `find_log` makes or loads a log that is not open."""
        self._opened = opened
        self._logs = logs
        self._find_log = find_log
        self._upkeep = upkeep
        self._scheduler = scheduler
        self._policies = policies
        self._clock = clock

    def run(
        self, policies: Iterable[RetentionPolicy] | None, *, delete: bool, held: HeldRecords | None = None
    ) -> RetentionReport:
        """What has expired, by these policies or those of the store. With `delete`, its segments are deleted."""
        chosen = self._policies if policies is None else tuple(policies)
        removals: list[Removal] = []
        failures: dict[tuple[str, int], str] = {}
        for partition in self._logs.everywhere():
            if self._scheduler.is_stopping:
                break
            log: PartitionLog | None = None
            try:
                # Not by `Store.partition`, which raises while the store closes: background threads may still run then.
                log = self._logs.by_partition.get(partition) or self._find_log(partition)
                kept = () if held is None else held.of(partition, log)
                removals += retain(log, chosen, self._clock(), delete=delete, held=kept)
            except UnknownTopic:
                continue  # It was deleted meanwhile.
            except Exception as error:  # Users write policies.
                if log is not None and self._logs.by_partition.get(partition) is not log:
                    continue  # Likewise, during the check.
                failures[partition] = str(error) if isinstance(error, DuralogError) else repr(error)
        return RetentionReport(removals=removals, failures=failures)

    def run_unasked(self) -> None:
        """In the background: what was due when the directory was opened is held."""
        failures = self.run(None, delete=True, held=self._upkeep.held).failures
        errors = [error for partition, error in failures.items() if partition not in self._opened.offline]
        if errors:
            more = f"; and {len(errors) - _MOST_NAMED:,} more" if len(errors) > _MOST_NAMED else ""
            raise StorageError("; ".join(errors[:_MOST_NAMED]) + more)
