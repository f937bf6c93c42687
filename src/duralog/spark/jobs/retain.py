"""`retain`: segments that have expired are deleted, by the rules of `duralog retain`, partitions in parallel.

A plan (`dry_run`) reads names, sizes and time indexes only, takes no lock and changes nothing. Otherwise the driver
holds the directory's lock, and each task borrows its partitions. A failed partition does not stop the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial as with_first
from typing import TYPE_CHECKING

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.reports.retain import RetainReport
from duralog.scanning.executor import Advance, Executor, OnProgress, one_by_one, run_in_equal_groups
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.chosen_partitions import choose_partitions, read_live
from duralog.spark.jobs.holding import check_shared_directory, hold
from duralog.storage.borrowed_partition import Loan, borrow
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.log.log_retention import retain as retain_log
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import BUILT_IN_POLICIES, Removal, RetentionPolicy
from duralog.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def retain(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    overrides: Mapping[str, object] | None = None,
    policies: Sequence[RetentionPolicy] = BUILT_IN_POLICIES,
    config: BrokerConfig | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RetainReport:
    """Delete expired segments. No other process may have the directory open. A dry run only lists them.

    `overrides` are as if the topics had these configs, `config` is what the broker's `server.properties` sets. Policies
    are pickled.
    """
    began = time.monotonic()
    check_shared_directory(path)
    work = _Work(
        path=os.path.abspath(path),
        overrides=dict(overrides or {}),
        policies=tuple(policies),
        config=config or BrokerConfig(),
        now_ms=wall_clock_ms() if now_ms is None else now_ms,
    )
    results = (_planned if dry_run else _carried_out)(SparkExecutor(spark, on_progress), work, topics, partition)
    return RetainReport(
        path=path,
        dry_run=dry_run,
        removals=[removal for found in results for removal in found.removals],
        configs={found.partition: found.config for found in results if found.config is not None},
        failures={found.partition: found.failure for found in results if found.failure is not None},
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Retained:
    partition: TopicPartition
    config: TopicConfig | None = None
    removals: Sequence[Removal] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    path: str
    overrides: Mapping[str, object]
    policies: Sequence[RetentionPolicy]
    config: BrokerConfig
    now_ms: int

    def retain(self, log: PartitionLog, *, delete: bool) -> _Retained:
        log.update_config(log.config.with_overrides(dict(self.overrides)))
        removals = retain_log(log, self.policies, self.now_ms, delete=delete)
        return _Retained(partition=TopicPartition(log.topic, log.partition), config=log.config, removals=removals)


def _planned(executor: Executor, work: _Work, topics: Collection[str] | None, partition: int | None) -> list[_Retained]:
    with Store(work.path, config=work.config, read_only=True) as store:
        found = [TopicPartition(topic, number) for topic in store.topics() for number in store.partitions(topic)]
    chosen = choose_partitions(found, topics, partition, work.path)
    # No log is read, so a large partition is as little work as a small one.
    return run_in_equal_groups(executor, chosen, with_first(_plan_partitions, work), name="retain")


def _plan_partitions(work: _Work, partitions: Sequence[TopicPartition], _: Advance) -> list[_Retained]:
    with Store(work.path, config=work.config, read_only=True) as store:
        return [_plan_partition(work, store, partition) for partition in partitions]


def _plan_partition(work: _Work, store: Store, partition: TopicPartition) -> _Retained:
    try:
        return read_live(store, partition, lambda log: work.retain(log, delete=False))
    except DuralogError as error:
        return _Retained(partition=partition, failure=str(error))


def _carried_out(
    executor: Executor, work: _Work, topics: Collection[str] | None, partition: int | None
) -> list[_Retained]:
    with hold(work.path, config=work.config) as held:
        chosen = choose_partitions((*held.partitions, *held.offline), topics, partition, work.path)
        loans = [held.lend(found) for found in chosen if found not in held.offline]
        results = run_in_equal_groups(executor, loans, one_by_one(with_first(_retain_partition, work)), name="retain")
    offline = [
        _Retained(partition=found, failure=f"it is offline: {held.offline[found]}")
        for found in chosen
        if found in held.offline
    ]
    return sorted([*results, *offline], key=lambda found: found.partition)


def _retain_partition(work: _Work, loan: Loan) -> _Retained:
    try:
        with borrow(loan) as borrowed:
            return work.retain(borrowed.log, delete=True)
    except DuralogError as error:
        return _Retained(partition=loan.partition, failure=str(error))
