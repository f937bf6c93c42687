"""Where `duralog bench` works: a folder of its own that is gone afterwards, however it ends.

A log directory gets no folder inside: Kafka does not start on one with a folder that belongs to no partition, and a
benchmark that is killed would leave it there. The folder is then made beside it, if that is the same disk.
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
    """The path of a new folder in, or beside, the directory; without one, where temporary files go."""
    place = tempfile.gettempdir() if directory is None else place_for(directory)
    room = disk_space(place).usable_bytes
    if room < needed_bytes:
        raise DuralogError(
            f"{place}: the disk has {room:,} bytes to spare, this takes {needed_bytes:,}: give a smaller --size,"
            " or a folder on another disk"
        )
    with ended_by_signals():
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        try:
            yield folder
        finally:
            # Gigabytes take a while to remove: whoever presses Ctrl-C again then must not leave half of them.
            with signals_ignored():
                shutil.rmtree(folder)


def place_for(directory: str) -> str:
    if not os.path.isdir(directory):
        raise DuralogError(f"{directory}: there is no such directory: make it first, or leave it out")
    if not LogDirectory(LocalFileSystem(), directory).has_logs():
        return directory
    beside = os.path.dirname(os.path.realpath(directory))
    if os.stat(beside).st_dev != os.stat(directory).st_dev or not os.access(beside, os.W_OK):
        raise DuralogError(
            f"{directory} is a log directory, which stays as it is, and nothing can be made beside it on its disk:"
            " give an empty folder on that disk"
        )
    return beside


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends what is going on as Ctrl-C does, so that nothing is left behind."""

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
        # Signals are somebody else's.
        yield
        return
    before = [(number, signal.signal(number, handler)) for number in signals]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)
