"""The driver's part in a write: all that the tasks have staged goes into the logs, once, or none of it.

1. The directory is opened for writing, which locks it. A commit that a crash has interrupted is completed first.
2. A write that was committed before, by its query and batch, does nothing.
3. Staged files are checked, topics created, rules checked again. An error ends the write here.
4. The journal is written. From here on the write is decided.
5. Batches are appended, partition by partition, those of one task after those of the task before. All is flushed.
6. The write is remembered as committed, the journal removed, and the staged files after it.

If the machine dies before step 4 is on disk, nothing has happened. After it, the write is completed by the next commit
or by `recover`, which appends what the logs do not hold already (`staged_appending`). The same is true of a disk that
is full, or fails: the write waits until there is room. It is lost only if its staged rows are, or if a log was
compacted or shortened meanwhile, so that its content is unknown: then `abandon` gives it up.

An error while the directory is closed changes nothing about any of this, and is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from duralog.config import BrokerConfig
from duralog.errors import (
    CorruptRecord,
    DuralogError,
    InvalidConfig,
    StorageError,
    StoreLocked,
)
from duralog.format.filenames import LOCK, SINK_JOURNAL
from duralog.format.topic_partition import TopicPartition
from duralog.spark.sink.commit_checks import check_all_contents, check_rules, make_topics, runs_by_partition
from duralog.spark.sink.commit_journal import (
    NOTHING,
    Journal,
    NotRemembered,
    add_committed,
    is_committed,
    read_journal,
    remember,
    remove_journal,
    write_journal,
)
from duralog.spark.sink.staged_appending import Runs, append_rest, count_present
from duralog.spark.sink.staging import (
    CannotComplete,
    StagedTask,
    open_staged,
    sweep,
    sweep_rubbish,
)
from duralog.spark.sink.write_options import AppVersion, WriteOptions
from duralog.storage.disk.background import Clock, Scheduler, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.parallel import for_each_partition
from duralog.storage.store import Store

_logger = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 30.0
"""Another write may be committing just now."""
_LOCK_PAUSE_SECONDS = 0.1

APPLICATION_KINDS = ("query ", "app ", "app-to ")
"""The prefixes of the names by which writes are remembered (`duralog.spark.sink.writers`)."""

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
    transaction: AppVersion | None = None,
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
            check_all_contents(files, by_name.values(), threads=store.config.num_recovery_threads_per_data_dir)
            make_topics(store, by_partition, options)
            check_rules(store, by_partition, options)
            journal = Journal(
                writer=writer,
                batch=batch,
                transaction=transaction,
                preserve_offsets=options.preserve_offsets,
                files={name: task.size for task in staged_tasks if (name := task.name) is not None},
                starts={partition: store.partition(*partition).end_offset for partition in by_partition},
            )
            if journal.files:
                _decide(files, path, journal)
                with _errors_after_decision(path, journal):
                    _append_all(store, files, by_partition, journal, is_fresh=True)
                    _conclude(files, path, journal)
            else:
                _conclude(files, path, journal)
        now_ms = clock()
    with suppress(StorageError):
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
    """Give up an interrupted write that cannot be completed. False if there is none.

    What is in the logs of it stays there, and the rest of its rows is not written: a torn write. One that was
    interrupted by a full or failing disk must not be given up: `recover` completes it.
    """
    files = file_system or LocalFileSystem()
    if not files.exists(f"{path}/{SINK_JOURNAL}"):
        return False
    with _opened(path, BrokerConfig(), files, wall_clock_ms):
        remove_journal(files, path)
    return True


def set_committed(
    path: str, last: Mapping[str, int], *, is_all: bool = False, file_system: FileSystem | None = None
) -> str | None:
    """Say which writes were committed, after `duralog-sink.committed` was damaged.

    `last` has the last version of each, -1 for none: `query ID` and the number of a micro-batch for a streaming query
    (the ID is in `metadata` of its checkpoint), `app NAME`, or `app-to TOPIC NAME` if the write has the option `topic`,
    and the `txnVersion` for a batch write. A write that is not named is refused if its version is above 0,
    unless `is_all` says that nothing else was committed. What the file holds otherwise stays; a damaged one is kept
    under another name, which is returned.
    """
    files = file_system or LocalFileSystem()
    for name, version in last.items():
        if not name.startswith(APPLICATION_KINDS) or version < NOTHING:
            raise InvalidConfig(
                f"set_committed: {name!r}: {version}: expected 'query ID', 'app NAME' or 'app-to TOPIC NAME' and a"
                " version of -1 or more"
            )
    with _opened(path, BrokerConfig(), files, wall_clock_ms):
        return add_committed(files, path, last, is_all=is_all)


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
    """The directory, locked, without upkeep: retention must not delete old records of a restored backup.

    Only the partitions that are written to are loaded, unless the directory has to be recovered.
    """
    store = _once_free(
        lambda: Store(
            path,
            config=config,
            file_system=files,
            clock=clock,
            scheduler=Scheduler(threads=0),
            load_on_use=True,
            keep_lost=True,
        )
    )
    try:
        yield store
    finally:
        # What the caller has done is on disk, or is done again: a full disk must not turn it into an error.
        try:
            store.close()
        except DuralogError as error:
            _logger.warning("%s: the directory could not be closed cleanly: %s", path, error)


def _once_free(attempt: Callable[[], T]) -> T:
    """Do what needs the directory's lock, and retry while another write may be committing."""
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
    # The process that wrote it may have died before its name was on disk: sync the name before acting on it.
    files.sync_folder(store.path)
    journal = read_journal(files, store.path)
    if journal is None:
        return False
    _logger.warning("%s: a write was interrupted and is completed now", store.path)
    # Once it is remembered, all of it was in the logs; what happened there since does not matter.
    if journal.transaction is None or not _is_remembered(files, store.path, journal.transaction):
        try:
            staged = [open_staged(files, store.path, name, size) for name, size in journal.files.items()]
            by_partition = runs_by_partition(staged, preserve_offsets=journal.preserve_offsets)
            _append_all(store, files, by_partition, journal, is_fresh=False)
        except DuralogError as error:
            raise StorageError(_why_incomplete(store.path, journal, error)) from error
    _conclude(files, store.path, journal)
    sweep(files, store.path, writer=journal.writer, up_to_batch=journal.batch, kept=())
    return True


def _is_remembered(files: FileSystem, path: str, transaction: AppVersion) -> bool:
    try:
        return is_committed(files, path, transaction)
    except NotRemembered:
        return False  # The logs show what is there of it.


def _why_incomplete(path: str, journal: Journal, error: DuralogError) -> str:
    if isinstance(error, CannotComplete | CorruptRecord):
        return (
            f"{path}: a write was interrupted and cannot be completed: {error}. Records of it may be in the logs from"
            f" these offsets on: {_offsets_text(journal.starts)}. duralog.spark.committing.abandon({path!r}) abandons"
            " it: these records stay, and the rest of its rows is not written"
        )
    return (
        f"{path}: a write was interrupted, and could not be completed now: {error}. It is decided, and nothing of it"
        f" is lost. Remove the cause: then the next write completes it, or duralog.spark.committing.recover({path!r})"
    )


def _offsets_text(starts: Mapping[TopicPartition, int]) -> str:
    shown = [f"{partition} {start}" for partition, start in list(starts.items())[:10]]
    return ", ".join(shown if len(starts) <= 10 else [*shown, f"and {len(starts) - 10} more"])


def _conclude(files: FileSystem, path: str, journal: Journal) -> None:
    if journal.transaction is not None:
        remember(files, path, journal.transaction)
    if journal.files:
        remove_journal(files, path)


# Once a write is decided


def _decide(files: FileSystem, path: str, journal: Journal) -> None:
    """Write the journal. It may be there although that fails: then the write is decided."""
    try:
        write_journal(files, path, journal)
    except StorageError as error:
        if _is_decided(files, path):
            raise _interrupted(path, journal, error) from error
        raise


def _is_decided(files: FileSystem, path: str) -> bool:
    try:
        return files.exists(f"{path}/{SINK_JOURNAL}")
    except StorageError:
        return True  # It may be.


@contextmanager
def _errors_after_decision(path: str, journal: Journal) -> Iterator[None]:
    """Errors that say that the write will be completed: a caller who sees it fail would write the rows again."""
    try:
        yield
    except DuralogError as error:
        raise _interrupted(path, journal, error) from error


def _interrupted(path: str, journal: Journal, error: DuralogError) -> StorageError:
    warning = " Do not write the rows again: they would be duplicated." if journal.transaction is None else ""
    return StorageError(
        f"{path}: the write is decided, but was interrupted: {error}. Nothing of it is lost: once the cause is removed,"
        f" the next write to this directory completes it, or duralog.spark.committing.recover({path!r}).{warning}"
    )


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
