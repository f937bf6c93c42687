"""Opens the source of the pages from the arguments of the command."""

from __future__ import annotations

import os

from duralog.console.source import Source
from duralog.console.sources.broker.source import BrokerSource
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.combined_source import CombinedSource
from duralog.console.sources.directory.source import DirectorySource
from duralog.console.sources.payloads import AUTOMATIC
from duralog.errors import DuralogError
from duralog.operations.addresses import check_directory, is_broker, is_url
from duralog.operations.opened_store import check_log_directory
from duralog.schemas.decode_options import Decode
from duralog.storage.disk.found_files import directory_of


def open_source(
    target: str,
    *,
    data: str | None = None,
    allow_changes: bool = False,
    metrics: CleanerMetrics | None = None,
    decode: Decode = AUTOMATIC,
    refresh_seconds: float = 2.0,
    start: bool = True,
) -> Source:
    """A directory, a broker by HOST:PORT, or a broker with the directory that it serves.

    Raises `DuralogError` if there is no such directory. The broker need not be running yet. Without `start` nothing
    runs in the background: call `step` instead.
    """
    source: DirectorySource | BrokerSource
    if not is_broker(target):
        if data is not None and os.path.abspath(data) != os.path.abspath(target):
            raise DuralogError(f"{target} and {data} are two directories: give one of them")
        source = DirectorySource(
            _checked(target),
            allow_changes=allow_changes,
            metrics=metrics,
            decode=decode,
            refresh_seconds=refresh_seconds,
        )
    elif data is not None:
        source = CombinedSource(
            target,
            _checked(data),
            allow_changes=allow_changes,
            metrics=metrics,
            decode=decode,
            refresh_seconds=refresh_seconds,
        )
    else:
        source = BrokerSource(target, metrics=metrics, decode=decode, refresh_seconds=refresh_seconds)
    if start:
        source.start()
    return source


def _checked(directory: str) -> str:
    _, partition = directory_of(directory)
    if partition is not None:
        raise DuralogError(f"{directory}: this is one partition: give the log directory that it is in")
    check_directory(directory)
    if is_url(directory):
        raise DuralogError(f"{directory}: this is a URL: give a directory of this machine")
    check_log_directory(directory)
    return directory
