"""The scratch folder of `duralog bench`, which is always removed at the end.

It is not created inside a log directory: Kafka refuses to start on a directory with a folder that is not a partition,
and a killed benchmark would leave one. It is created next to the log directory, if that is on the same disk.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from duralog.errors import DuralogError
from duralog.storage.disk.file_system import LocalFileSystem, disk_space
from duralog.storage.disk.log_directory import LogDirectory

_PREFIX = "duralog-bench-"


@contextmanager
def scratch_folder(directory: str | None, needed_bytes: int) -> Iterator[str]:
    """The path of a new folder in the directory, or next to it; by default in the folder of temporary files."""
    place = tempfile.gettempdir() if directory is None else place_for(directory)
    room = disk_space(place).usable_bytes
    if room < needed_bytes:
        raise DuralogError(
            f"{place}: the disk has {room:,} bytes free, and this needs {needed_bytes:,}: give a smaller --size,"
            " or a folder on another disk"
        )
    with ended_by_signals():
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        try:
            yield folder
        finally:
            # Removing gigabytes takes a while: a second Ctrl-C must not leave half of them.
            with signals_ignored():
                shutil.rmtree(folder)


def place_for(directory: str) -> str:
    if not os.path.isdir(directory):
        raise DuralogError(f"{directory}: there is no such directory: create it first, or leave it out")
    if not LogDirectory(LocalFileSystem(), directory).has_logs():
        return directory
    parent = os.path.dirname(os.path.realpath(directory))
    if os.stat(parent).st_dev != os.stat(directory).st_dev or not os.access(parent, os.W_OK):
        raise DuralogError(
            f"{directory} is a log directory, where nothing may be created, and no folder can be created next to it "
            f"on its disk: give an empty folder on that disk"
        )
    return parent


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that nothing is left behind."""

    def interrupt(_: int, __: FrameType | None) -> Any:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM):
        yield


@contextmanager
def signals_ignored() -> Iterator[None]:
    with _handled(signal.SIG_IGN, signal.SIGTERM, signal.SIGINT):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], Any] | signal.Handlers, *signals: int) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can handle signals.
        yield
        return
    before = [(number, signal.signal(number, handler)) for number in signals]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)
