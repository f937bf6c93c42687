"""A store for an operation, without upkeep: nothing is compacted or deleted unless requested.

Delayed work of the store runs at the end of the operation: files of deleted segments and topics are removed at once,
since no other process can have the directory open for writing.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from duralog.config import BrokerConfig
from duralog.config.progress import OnProgress, ignore
from duralog.errors import CorruptRecord, DuralogError
from duralog.operations.lock_holder import lock_holder_named
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directories import log_directories
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store


def is_log_directory(path: str) -> bool:
    """Whether there are files of a log."""
    return os.path.isdir(path) and LogDirectory(LocalFileSystem(), path).has_logs()


def check_log_directory(path: str) -> None:
    """Refuse a directory without files of a log: opening it for writing would turn it into a log directory."""
    LogDirectory(LocalFileSystem(), path).check()


@contextmanager
def opened_for_writing(
    path: str | Sequence[str],
    config: BrokerConfig,
    *,
    scheduler: Scheduler | None = None,
    on_progress: OnProgress = ignore,
    load_on_use: bool = False,
) -> Iterator[Store]:
    """The directory, locked. Recovery, if there is any, is reported. The caller may run the scheduler's tasks.

    With `load_on_use`, partitions are loaded when they are first used, if the directory was closed cleanly.
    """
    scheduler = scheduler or immediate_tasks()
    paths = log_directories(path, config.log_dirs)
    without_upkeep = replace(config, log_segment_delete_delay_ms=0, log_cleaner_enable=False)
    try:
        with lock_holder_named(*paths):
            store = Store(
                paths,
                config=without_upkeep,
                show_progress=on_progress,
                scheduler=scheduler,
                load_on_use=load_on_use,
                keep_lost=True,
            )
    except CorruptRecord as corrupt:
        if METADATA_PARTITION.topic not in (corrupt.file or ""):
            raise
        raise DuralogError(
            f"{corrupt}: duralog repair --dry-run {paths[0]} --topic {METADATA_PARTITION.topic} shows what can be done"
        ) from corrupt
    with store:
        try:
            yield store
        finally:
            scheduler.run_due()


def immediate_tasks() -> Scheduler:
    """A scheduler whose clock stands still: `run_due` runs what is due at once, and nothing that is due later."""
    return Scheduler(lambda: 0, threads=0)
