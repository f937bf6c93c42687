"""Delete the segments that have expired, by time, by size and by log start offset."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from duralog.config import BrokerConfig, TopicConfig
from duralog.config.error_text import describe
from duralog.config.progress import Counted, OnProgress, ignore
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.directory_topics import topics_in
from duralog.operations.opened_store import check_log_directory, opened_for_writing
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers
from duralog.reports.retain import RetainReport
from duralog.storage.log.log_retention import retain as retain_log
from duralog.storage.log.retention import BUILT_IN_POLICIES, Removal
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainRequest:
    path: str
    """Of the log directory."""
    now_ms: int
    choice: Choice = EVERYTHING
    overrides: Mapping[str, int] = field(default_factory=dict)
    """As if these were the topics' `retention.ms` and `retention.bytes`."""
    config: BrokerConfig = field(default_factory=BrokerConfig)
    dry_run: bool = False


class RetentionUnknown(DuralogError):
    """The directory has topics, but not their configs: Kafka's defaults could delete segments that must stay."""


def check_retention_known(request: RetainRequest) -> None:
    """Raises `RetentionUnknown`. Before the directory is opened: a store that is written to gets a metadata log."""
    if request.overrides or not topics_in(request.path):
        return
    if not os.path.isdir(os.path.join(request.path, str(METADATA_PARTITION))):
        raise RetentionUnknown(f"there is no {METADATA_PARTITION} in {request.path}")


def retain(request: RetainRequest, workers: Workers = TWO_THREADS, *, on_progress: OnProgress = ignore) -> RetainReport:
    """No one may have the directory open, unless it is a dry run. A failed partition does not stop the others.

    Threads do one partition after the other: no log is read.
    """
    if not request.dry_run:
        check_retention_known(request)
    if isinstance(workers, OnSpark):
        from duralog.spark.jobs.retain import retain as run

        return run(
            workers.session,
            request.path,
            topics=request.choice.topics,
            partition=request.choice.partition,
            overrides=request.overrides,
            config=request.config,
            now_ms=request.now_ms,
            dry_run=request.dry_run,
            on_progress=on_progress,
        )
    began = time.monotonic()
    with _opened(request, on_progress) as store:
        removals: list[Removal] = []
        configs: dict[TopicPartition, TopicConfig] = {}
        failures = request.choice.offline(store)
        chosen = list(request.choice.partitions(store))
        for number, partition in enumerate(chosen):
            step = Counted(label=str(partition), done=number, total=len(chosen), unit="partition", step="retain")
            on_progress(step)
            try:
                log = store.partition(*partition)
                log.update_config(log.config.with_overrides({**request.overrides, "file.delete.delay.ms": 0}))
                configs[partition] = log.config
                removals += retain_log(log, BUILT_IN_POLICIES, request.now_ms, delete=not request.dry_run)
            except DuralogError as error:
                failures[partition] = describe(error)
        return RetainReport(
            path=request.path,
            dry_run=request.dry_run,
            removals=removals,
            configs=configs,
            failures=failures,
            seconds=time.monotonic() - began,
        )


@contextmanager
def _opened(request: RetainRequest, on_progress: OnProgress) -> Iterator[Store]:
    if request.dry_run:
        with Store(request.path, config=request.config, read_only=True) as store:
            yield store
        return
    check_log_directory(request.path)
    with opened_for_writing(request.path, request.config, on_progress=on_progress) as store:
        yield store
