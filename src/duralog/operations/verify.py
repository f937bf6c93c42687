"""Check every file of a log directory. Nothing is changed, and the directory may be in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from duralog.config.progress import Counted, OnProgress, ignore
from duralog.errors import CorruptRecord
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers, ignore_result
from duralog.storage.checks.findings import Note
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.checks.verification import Verification, VerifiedTotals


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
    """How much there is to check. On Spark it is known when all is checked."""

    size_bytes: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    path: str
    partitions: Sequence[PartitionReport]
    errors: Sequence[CorruptRecord]
    """Of the directory itself."""
    notes: Sequence[Note]
    totals: VerifiedTotals

    @property
    def is_sound(self) -> bool:
        return not self.totals.errors


def verify(
    request: VerifyRequest,
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_start: Callable[[ToVerify], None] = ignore_result,
    on_partition: Callable[[PartitionReport], None] = ignore_result,
) -> Verified:
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
    return Verified(
        path=request.path,
        partitions=verification.reports,
        errors=verification.errors,
        notes=verification.notes,
        totals=verification.totals,
    )


def _verify_on_spark(request: VerifyRequest, workers: OnSpark, on_progress: OnProgress) -> Verified:
    from duralog.spark.jobs.verify import verify as run

    report = run(
        workers.session,
        request.path,
        topics=request.choice.topics,
        partition=request.choice.partition,
        deep=request.deep,
        interval_bytes=request.interval_bytes,
        storage_options=request.storage_options,
        on_progress=on_progress,
    )
    return Verified(
        path=report.path,
        partitions=report.partitions,
        errors=report.errors,
        notes=report.notes,
        totals=report.totals,
    )
