"""A store that a command works on: opened with the broker's own configs, closed in order, never looked after beside.

What the store would do later, it does at the end of the command: files of deleted segments and topics go at once, since
nobody else can have the directory open for writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from duralog.cli.common.addresses import check_directory, check_log_directory, check_no_file
from duralog.cli.common.failures import say
from duralog.cli.common.lock_holder import holder_told
from duralog.cli.common.progress import Progress
from duralog.cli.server_properties import read_server_properties
from duralog.config import BrokerConfig
from duralog.errors import CorruptRecord, DuralogError
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.found_files import directory_of
from duralog.storage.disk.parallel import Progress as Loading
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store


@contextmanager
def opened_store(
    path: str,
    *,
    read_only: bool,
    server_properties: str | None,
    create: bool = False,
    quiet: bool = False,
    scheduler: Scheduler | None = None,
) -> Iterator[Store]:
    """With `create`, a directory that is not there is made. Whoever gives a scheduler may run its tasks meanwhile."""
    _, partition = directory_of(path)
    if partition is not None:
        raise DuralogError(f"{path}: this is one partition: give the log directory that it is in, and --topic")
    if create:
        check_no_file(path)
    else:
        check_directory(path)
        if not read_only:
            check_log_directory(path)
    config = broker_config(server_properties)
    if read_only:
        yield Store(path, config=config, read_only=True)
        return
    scheduler = scheduler or tasks_at_once()
    try:
        with holder_told(path), _Loading(wanted=not quiet) as loading:
            store = Store(path, config=_left_alone(config), show_progress=loading.show, scheduler=scheduler)
    except CorruptRecord as corrupt:
        if METADATA_PARTITION.topic not in (corrupt.file or ""):
            raise
        raise DuralogError(
            f"{corrupt}: duralog repair --dry-run {path} --topic {METADATA_PARTITION.topic} tells what can be done"
        ) from corrupt
    with store:
        if quiet:
            # Otherwise the store's own words have told it.
            for offline, error in store.offline.items():
                say(f"error: {offline} is offline: {error}")
        try:
            yield store
        finally:
            scheduler.run_due()


def tasks_at_once() -> Scheduler:
    """Its clock stands still: what is to happen at once happens, when told so; what is to happen later does not."""
    return Scheduler(lambda: 0, threads=0)


def broker_config(server_properties: str | None) -> BrokerConfig:
    if server_properties is None:
        return BrokerConfig()
    return BrokerConfig.from_properties(read_server_properties(server_properties))


def _left_alone(config: BrokerConfig) -> BrokerConfig:
    """Nothing is left for later, and nothing is compacted that nobody asked for."""
    return replace(config, log_segment_delete_delay_ms=0, log_cleaner_enable=False)


class _Loading:
    """A bar for the recovery that opening may mean."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._progress: Progress | None = None
        self._done = 0

    def show(self, loading: Loading) -> None:
        if self._progress is None:
            self._progress = Progress(loading.bytes_total, wanted=self._wanted)
            self._progress.begin("recovering")
        self._progress.advance(loading.bytes_done - self._done)
        self._done = loading.bytes_done

    def __enter__(self) -> _Loading:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.hide()
