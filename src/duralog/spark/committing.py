"""The driver's part in a write: all that the tasks have staged goes into the logs, once, or none of it.

1. The directory is opened for writing, which locks it. A commit that a crash has interrupted is completed first.
2. A write that was committed before, by its query and batch, does nothing.
3. Staged files are read through, topics made, rules looked at again. Whatever is wrong ends the write here.
4. The journal is written. From here on the write is decided.
5. Batches are appended, partition by partition, those of one task after those of the task before. All is flushed.
6. The write is remembered as committed, the journal removed, and the staged files after it.

If the machine dies before step 4 is on disk, nothing has happened. After it, the write is completed by the next commit
or by `recover`, which appends what the logs do not hold already (`staged_appending`). What cannot be told, since a log
was compacted or shortened meanwhile, is refused with a sentence; `abandon` gives the write up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from duralog.config import BrokerConfig
from duralog.errors import (
    DuralogError,
    InvalidRecord,
    OffsetOutOfRange,
    RecordTooLarge,
    StorageError,
    StoreLocked,
)
from duralog.format.compression import Codec
from duralog.format.filenames import LOCK, SINK_JOURNAL
from duralog.spark.commit_journal import (
    Journal,
    is_committed,
    read_journal,
    remember,
    remove_journal,
    write_journal,
)
from duralog.spark.staged_appending import Runs, append_rest, count_present
from duralog.spark.staging import (
    Run,
    StagedFile,
    StagedTask,
    check_contents,
    open_staged,
    sweep,
    sweep_rubbish,
)
from duralog.spark.write_options import Transaction, WriteOptions
from duralog.storage.background import Clock, Scheduler, wall_clock_ms
from duralog.storage.file_system import FileSystem, LocalFileSystem
from duralog.storage.log_directory import TopicPartition
from duralog.storage.parallel import for_each_partition
from duralog.storage.record_append import stored_codec
from duralog.storage.retention import COMPACT
from duralog.storage.store import Store

_logger = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 30.0
"""Another write may be committing just now."""
_LOCK_PAUSE_SECONDS = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    records: int
    size_bytes: int
    partitions: int
    is_repeated: bool = False
    """The write was committed before: nothing was appended."""


def commit(
    tasks: Sequence[StagedTask],
    options: WriteOptions,
    *,
    writer: str,
    batch: int = 0,
    transaction: Transaction | None = None,
    file_system: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> CommitReport:
    """Append what the tasks have staged. `transaction` is what the write is remembered by, if it may be repeated."""
    files, path = file_system or LocalFileSystem(), options.path
    staged_tasks = [task for task in sorted(tasks, key=lambda task: task.task) if task.name is not None]
    with _opened(path, options.broker_config(), files, clock) as store:
        _complete(store, files)
        is_repeated = transaction is not None and is_committed(files, path, transaction)
        if not is_repeated:
            by_name = {task.name: open_staged(files, path, task.name, task.size) for task in staged_tasks if task.name}
            by_partition = runs_by_partition(by_name.values(), preserve_offsets=options.preserve_offsets)
            _check_all(files, by_name.values(), threads=store.config.num_recovery_threads_per_data_dir)
            _make_topics(store, by_partition, options)
            _check_rules(store, by_partition, options)
            journal = Journal(
                writer=writer,
                batch=batch,
                transaction=transaction,
                preserve_offsets=options.preserve_offsets,
                files={name: task.size for task in staged_tasks if (name := task.name) is not None},
                starts={partition: store.partition(*partition).end_offset for partition in by_partition},
            )
            if journal.files:
                write_journal(files, path, journal)
                with _told_as_decided(path, journal):
                    _append_all(store, files, by_partition, journal, is_fresh=True)
                    _conclude(files, path, journal)
            else:
                _conclude(files, path, journal)
        now_ms = clock()
    sweep(files, path, writer=writer, up_to_batch=batch, kept=())
    sweep_rubbish(files, path, now_ms=now_ms, kept=())
    if is_repeated:
        return CommitReport(records=0, size_bytes=0, partitions=0, is_repeated=True)
    runs = [run for ordered in by_partition.values() for _, run in ordered]
    return CommitReport(
        records=sum(run.records for run in runs),
        size_bytes=sum(run.size for run in runs),
        partitions=len(by_partition),
    )


def recover(
    path: str,
    *,
    config: BrokerConfig | None = None,
    file_system: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> bool:
    """Complete a write that a crash has interrupted. False if there is none. Every commit does this by itself."""
    files = file_system or LocalFileSystem()
    if not files.exists(f"{path}/{SINK_JOURNAL}"):
        return False
    with _opened(path, config or BrokerConfig(), files, clock) as store:
        return _complete(store, files)


def abandon(path: str, *, file_system: FileSystem | None = None) -> bool:
    """Give up an interrupted write that cannot be completed. What it has appended stays. False if there is none."""
    files = file_system or LocalFileSystem()
    if not files.exists(f"{path}/{SINK_JOURNAL}"):
        return False
    with _opened(path, BrokerConfig(), files, wall_clock_ms):
        remove_journal(files, path)
    return True


def discard(options: WriteOptions, *, writer: str, batch: int = 0, file_system: FileSystem | None = None) -> None:
    """Remove what the tasks of a write have staged, unless it is decided already."""
    files = file_system or LocalFileSystem()
    journal = read_journal(files, options.path)
    sweep(files, options.path, writer=writer, up_to_batch=batch, kept=() if journal is None else journal.files)


def check_free(path: str, *, file_system: FileSystem | None = None) -> None:
    """Find out before the first task starts whether a broker holds the directory."""
    files = file_system or LocalFileSystem()
    lock = f"{path}/{LOCK}"
    if files.exists(lock):
        _once_free(lambda: files.lock(lock)).release()


@contextmanager
def _opened(path: str, config: BrokerConfig, files: FileSystem, clock: Clock) -> Iterator[Store]:
    """The directory, locked. Nothing goes on in it beside the caller: a backup may come back with old records."""
    with _once_free(
        lambda: Store(path, config=config, file_system=files, clock=clock, scheduler=Scheduler(threads=0))
    ) as store:
        yield store


def _once_free(attempt: Callable[[], T]) -> T:
    """What needs the directory's lock, tried again while another write may be committing."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            return attempt()
        except StoreLocked as error:
            if time.monotonic() >= deadline:
                raise StoreLocked(
                    f"{error}. If that is a broker, give its address in the option kafka.bootstrap.servers: the rows"
                    " then go through its port"
                ) from None
        time.sleep(_LOCK_PAUSE_SECONDS)


def _complete(store: Store, files: FileSystem) -> bool:
    """Complete the write of the journal, if there is one."""
    # The process that wrote it may have died before its name was on disk: nothing may be done by it before it is.
    files.sync_folder(store.path)
    journal = read_journal(files, store.path)
    if journal is None:
        return False
    _logger.warning("%s: a write was interrupted and is completed now", store.path)
    # Once it is remembered, all of it was in the logs; what became of it there since is nobody's business.
    if journal.transaction is None or not is_committed(files, store.path, journal.transaction):
        try:
            staged = [open_staged(files, store.path, name, size) for name, size in journal.files.items()]
            by_partition = runs_by_partition(staged, preserve_offsets=journal.preserve_offsets)
            _append_all(store, files, by_partition, journal, is_fresh=False)
        except DuralogError as error:
            raise StorageError(
                f"{store.path}: a write was interrupted and cannot be completed: {error}. Records of it may be in the"
                f" logs from these offsets on: {_told(journal.starts)}. duralog.spark.committing.abandon gives it up"
            ) from error
    _conclude(files, store.path, journal)
    sweep(files, store.path, writer=journal.writer, up_to_batch=journal.batch, kept=())
    return True


def _told(starts: Mapping[TopicPartition, int]) -> str:
    told = [f"{partition} {start}" for partition, start in list(starts.items())[:10]]
    return ", ".join(told if len(starts) <= 10 else [*told, f"and {len(starts) - 10} more"])


def _conclude(files: FileSystem, path: str, journal: Journal) -> None:
    if journal.transaction is not None:
        remember(files, path, journal.transaction)
    if journal.files:
        remove_journal(files, path)


# Before the write is decided


def runs_by_partition(staged: Collection[StagedFile], *, preserve_offsets: bool) -> dict[TopicPartition, Runs]:
    """The runs of each partition in the order in which they are appended."""
    found: dict[TopicPartition, list[tuple[StagedFile, Run]]] = {}
    for file in staged:
        for run in file.runs:
            found.setdefault(TopicPartition(run.topic, run.partition), []).append((file, run))
    if preserve_offsets:
        for partition, runs in found.items():
            runs.sort(key=lambda item: item[1].first_offset)
            for (_, before), (_, after) in pairwise(runs):
                if after.first_offset <= before.last_offset:
                    raise InvalidRecord(
                        f"column offset: two tasks have offsets of {partition} that overlap, up to"
                        f" {before.last_offset} and from {after.first_offset} on: repartition by topic and partition,"
                        " and sort within partitions by offset"
                    )
    return dict(sorted(found.items()))


def _check_all(files: FileSystem, staged: Collection[StagedFile], *, threads: int) -> None:
    with ThreadPoolExecutor(threads, thread_name_prefix="duralog-staged") as pool:
        for checked in [pool.submit(check_contents, files, file) for file in staged]:
            checked.result()


def check_partition_count(topic: str, count: int, runs: Runs) -> None:
    """A topic that has other partitions than the tasks knew of has its keys in other places."""
    for _, run in runs:
        if run.chosen_of not in (None, count):
            raise InvalidRecord(
                f"{topic} has {count} partitions, but {run.chosen_of} when the partitions of the rows were chosen by"
                " their keys: write them again"
            )


def _make_topics(store: Store, by_partition: Mapping[TopicPartition, Runs], options: WriteOptions) -> None:
    highest = dict(sorted(by_partition))
    for topic in sorted(highest.keys() - set(store.topics())):
        count = options.partitions
        if count is None and options.preserve_offsets:
            count = highest[topic] + 1
        store.create_topic(topic, count, options.topic_configs)


def _check_rules(store: Store, by_partition: Mapping[TopicPartition, Runs], options: WriteOptions) -> None:
    """What the tasks have checked by the configs of that time: they may have changed since."""
    for partition, runs in by_partition.items():
        log = store.partition(*partition)
        config = log.config
        check_partition_count(partition.topic, store.partition_count(partition.topic), runs)
        if COMPACT in config.cleanup_policy and any(run.has_null_key for _, run in runs):
            raise InvalidRecord(f"column key: {partition.topic} is compacted and takes no record without a key")
        largest = max(run.largest_batch for _, run in runs)
        if largest > min(config.max_message_bytes, config.segment_bytes):
            raise RecordTooLarge(
                f"column value: a batch of {largest} bytes for {partition.topic}, whose max.message.bytes is"
                f" {config.max_message_bytes} and segment.bytes {config.segment_bytes}"
            )
        if options.preserve_offsets:
            first = runs[0][1].first_offset
            if first < log.end_offset:
                raise OffsetOutOfRange(
                    f"column offset: {partition} ends at {log.end_offset}: offset {first} cannot be put before that"
                )
        elif any(run.codec != stored_codec(config, Codec(run.codec)) for _, run in runs):
            raise InvalidRecord(
                f"the compression.type of {partition.topic} has changed while the rows were written: write them again"
            )


# Once it is


@contextmanager
def _told_as_decided(path: str, journal: Journal) -> Iterator[None]:
    """Who sees a write fail would write again; but what is decided will be there all the same."""
    try:
        yield
    except DuralogError as error:
        warning = " Do not write the rows again: they would be there twice." if journal.transaction is None else ""
        raise StorageError(
            f"{path}: the write is decided, but was interrupted: {error}. The next write to this directory completes"
            f" it, or duralog.spark.committing.recover.{warning}"
        ) from error


def _append_all(
    store: Store, files: FileSystem, by_partition: Mapping[TopicPartition, Runs], journal: Journal, *, is_fresh: bool
) -> None:
    def append(partition: TopicPartition, _: object) -> None:
        log, runs = store.partition(*partition), by_partition[partition]
        present = 0 if is_fresh else count_present(log, files, runs, journal.starts[partition])
        append_rest(log, files, runs, present, preserve_offsets=journal.preserve_offsets)
        log.flush()

    threads = store.config.num_recovery_threads_per_data_dir
    outcome = for_each_partition(list(by_partition), append, threads=threads)
    for error in outcome.failures.values():
        raise error
