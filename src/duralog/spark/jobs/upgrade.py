"""`upgrade`: messages of format v0 and v1 become record batches of format v2, partitions in parallel.

`duralog.storage.repair.format_upgrade` does the work, and proves for every partition that its records are what they
were. The driver holds the directory's lock from start to end (`duralog.spark.jobs.holding`). If a task or the driver
dies, each segment is old or new, and the same job can be run again. A failed partition does not stop the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial as with_first
from typing import TYPE_CHECKING, Any

from duralog.columnar.upgrading import UpgradeRules
from duralog.config import BrokerConfig
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.executor import Advance, Executor, OnProgress, one_by_one, run_in_groups
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.chosen_partitions import choose_partitions, log_bytes, read_live
from duralog.spark.jobs.holding import check_shared_directory, hold
from duralog.storage.borrowed_partition import Loan, borrow
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.repair.format_upgrade import DEFAULT_RULES, LogUpgrade, preview_upgrade, upgrade_log
from duralog.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS_SCHEMA = (
    "topic string, partition int, segments bigint, messages bigint, batches bigint, bytes_before bigint,"
    " bytes_after bigint, records bigint, digest_before string, digest_after string, left bigint, failure string,"
    " seconds double"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpgrade:
    partition: TopicPartition
    upgrade: LogUpgrade | None
    """None if it failed."""
    failure: str | None = None

    @property
    def is_done(self) -> bool:
        """Nothing of an old format is left."""
        return self.upgrade is not None and not self.upgrade.left

    def to_dict(self) -> dict[str, Any]:
        if self.upgrade is None:
            return {
                "kind": "partition",
                "topic": self.partition.topic,
                "partition": self.partition.partition,
                "failure": self.failure,
            }
        return {**self.upgrade.to_dict(), "failure": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport:
    path: str
    dry_run: bool
    partitions: Sequence[PartitionUpgrade]
    seconds: float

    @property
    def is_done(self) -> bool:
        return all(partition.is_done for partition in self.partitions)

    @property
    def upgrades(self) -> list[LogUpgrade]:
        """Those that did not fail."""
        return [found.upgrade for found in self.partitions if found.upgrade is not None]

    def summary(self) -> dict[str, Any]:
        upgrades = self.upgrades
        return {
            "dry_run": self.dry_run,
            "partitions": len(self.partitions),
            "upgraded": sum(upgrade.segments > 0 for upgrade in upgrades),
            "segments": sum(upgrade.segments for upgrade in upgrades),
            "messages": sum(upgrade.messages for upgrade in upgrades),
            "records": sum(upgrade.before.records for upgrade in upgrades),
            "bytes_before": sum(upgrade.bytes_before for upgrade in upgrades),
            "bytes_after": sum(upgrade.bytes_after for upgrade in upgrades),
            "left": sum(len(upgrade.left) for upgrade in upgrades),
            "failures": sum(found.failure is not None for found in self.partitions),
            "seconds": round(self.seconds, 3),
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            **self.summary(),
            "per_partition": [found.to_dict() for found in self.partitions],
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each partition, with the digests of its records before and after."""
        names = [column.split()[0] for column in PARTITIONS_SCHEMA.split(",")]
        rows = [
            {**found.to_dict(), "left": len(found.upgrade.left) if found.upgrade else 0} for found in self.partitions
        ]
        return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], PARTITIONS_SCHEMA)


def upgrade(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    rules: UpgradeRules = DEFAULT_RULES,
    config: BrokerConfig | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> UpgradeReport:
    """Upgrade the logs of a directory. No other process may have it open. A dry run counts what there is to do.

    `config` is what the broker's `server.properties` sets.
    """
    began = time.monotonic()
    executor = SparkExecutor(spark, on_progress)
    found = (
        _preview(executor, path, topics, partition)
        if dry_run
        else _upgrade(executor, path, topics, partition, rules, config)
    )
    return UpgradeReport(path=path, dry_run=dry_run, partitions=found, seconds=time.monotonic() - began)


def _upgrade(
    executor: Executor,
    path: str,
    topics: Collection[str] | None,
    partition: int | None,
    rules: UpgradeRules,
    config: BrokerConfig | None,
) -> list[PartitionUpgrade]:
    with hold(path, config=config) as held:
        chosen = choose_partitions((*held.partitions, *held.offline), topics, partition, path)
        loans = [held.lend(found) for found in chosen if found not in held.offline]
        results = run_in_groups(
            executor,
            loans,
            one_by_one(with_first(_upgrade_partition, rules)),
            size_bytes=lambda loan: log_bytes(held.directory.folder_of(loan.partition)),
            name="upgrade",
        )
    offline = [
        PartitionUpgrade(partition=found, upgrade=None, failure=f"it is offline: {held.offline[found]}")
        for found in chosen
        if found in held.offline
    ]
    return sorted([*results, *offline], key=lambda result: result.partition)


def _upgrade_partition(rules: UpgradeRules, loan: Loan) -> PartitionUpgrade:
    try:
        with borrow(loan) as borrowed:
            done = upgrade_log(borrowed.log, rules=rules)
    except DuralogError as error:
        return PartitionUpgrade(partition=loan.partition, upgrade=None, failure=str(error))
    return PartitionUpgrade(partition=loan.partition, upgrade=done)


def _preview(
    executor: Executor, path: str, topics: Collection[str] | None, partition: int | None
) -> list[PartitionUpgrade]:
    check_shared_directory(path)
    folder_of = LogDirectory(LocalFileSystem(), path).folder_of
    with Store(path, read_only=True) as store:
        found = [TopicPartition(topic, number) for topic in store.topics() for number in store.partitions(topic)]
    sizes = {known: log_bytes(folder_of(known)) for known in choose_partitions(found, topics, partition, path)}
    return run_in_groups(
        executor,
        list(sizes),
        with_first(_preview_partitions, os.path.abspath(path)),
        size_bytes=sizes.__getitem__,
        name="upgrade",
    )


def _preview_partitions(path: str, partitions: Sequence[TopicPartition], _: Advance) -> list[PartitionUpgrade]:
    with Store(path, read_only=True) as store:
        return [_preview_partition(store, partition) for partition in partitions]


def _preview_partition(store: Store, partition: TopicPartition) -> PartitionUpgrade:
    try:
        return PartitionUpgrade(partition=partition, upgrade=read_live(store, partition, preview_upgrade))
    except DuralogError as error:
        return PartitionUpgrade(partition=partition, upgrade=None, failure=str(error))
