"""`verify`: a whole directory checked by all cores of a cluster. Reads everything, changes nothing.

The driver lists the folders and reads small files. Tasks read the logs, in independent chains of segments
(`duralog.storage.checks.chain`): a large partition is spread over many tasks, and small ones share one. The driver
merges the results as `duralog verify` does, so the findings are the same.

A partition without any producer snapshot is one chain, and one task: its batches can be checked only in order.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from duralog.reports.verify import VerifyReport
from duralog.scanning.executor import Advance, OnProgress, in_groups
from duralog.scanning.locations import Location
from duralog.scanning.remote_checks import files_at
from duralog.spark.executor import SparkExecutor
from duralog.storage.checks.chain import Checked
from duralog.storage.checks.verification import DEFAULT_THREADS, ChainWork, Verification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REMOTE_THREADS = 32
"""How many partitions of an object store are listed at a time: nearly all of it is waiting for responses."""


def verify(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    deep: bool = False,
    interval_bytes: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Check a log directory, or one partition's folder, on a disk or an object store; see `duralog verify`.

    With `deep`, every record is decoded. With `interval_bytes`, indexes must match that interval exactly.
    """
    started = time.monotonic()
    location = Location.of(path, storage_options)
    verification = Verification(
        location.url,
        topics=topics,
        partition=partition,
        interval_bytes=interval_bytes,
        decode=deep,
        threads=_REMOTE_THREADS if location.is_remote else DEFAULT_THREADS,
        source=files_at(location),
    )
    work = verification.work()
    executor = SparkExecutor(spark, on_progress)
    groups = in_groups(executor, work, lambda chain: chain.size_bytes)
    checked = executor.run(
        groups,
        partial(_check, location),
        weight=lambda group: sum(chain.size_bytes for chain in group),
        name="verify",
    )
    for _ in verification.conclude(result for group in checked for result in group):
        pass  # The verification keeps the reports.
    verification.totals.seconds = time.monotonic() - started
    return VerifyReport.of(verification, path, tasks=len(groups))


def _check(location: Location, group: Sequence[ChainWork], advance: Advance) -> list[Checked]:
    source = files_at(location)
    return [work.check(advance, source) for work in group]
