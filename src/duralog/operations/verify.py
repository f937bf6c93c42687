"""Check every file of a log directory. Nothing is changed, and the directory may be in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from duralog.config.progress import Counted, OnProgress, ignore
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers, ignore_result
from duralog.reports.verify import VerifyReport
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.checks.verification import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    path: str
    """Of a log directory, or of one partition's folder. On Spark also the URL of an object store."""
    choice: Choice = EVERYTHING
    deep: bool = False
    """Also decompress every batch and decode every record."""
    interval_bytes: int | None = None
    """The topics' `index.interval.bytes`: indexes must then match exactly."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    """Of an object store."""


@dataclass(frozen=True, slots=True)
class ToVerify:
    """The amount to check. On Spark it is known only at the end."""

    size_bytes: int
    partitions: int


def verify(
    request: VerifyRequest,
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_start: Callable[[ToVerify], None] = ignore_result,
    on_partition: Callable[[PartitionReport], None] = ignore_result,
) -> VerifyReport:
    """`on_partition` is called with each report: on threads when the partition is done, on Spark at the end."""
    if isinstance(workers, OnSpark):
        verified = _verify_on_spark(request, workers, on_progress)
        on_start(ToVerify(verified.totals.counts.size_bytes, len(verified.partitions)))
        for report in verified.partitions:
            on_partition(report)
        return verified
    verification = Verification(
        request.path,
        topics=request.choice.topics,
        partition=request.choice.partition,
        threads=workers.count,
        interval_bytes=request.interval_bytes,
        decode=request.deep,
    )
    size_bytes = verification.size_bytes
    on_start(ToVerify(size_bytes, verification.partitions))
    for report in verification.run(lambda done, name: on_progress(Counted(label=name, done=done, total=size_bytes))):
        on_partition(report)
    return VerifyReport.of(verification, request.path)


def _verify_on_spark(request: VerifyRequest, workers: OnSpark, on_progress: OnProgress) -> VerifyReport:
    from duralog.spark.jobs.verify import verify as run

    return run(
        workers.session,
        request.path,
        topics=request.choice.topics,
        partition=request.choice.partition,
        deep=request.deep,
        interval_bytes=request.interval_bytes,
        storage_options=request.storage_options,
        on_progress=on_progress,
    )
