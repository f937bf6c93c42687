"""How kernels are compiled, and where the machine code is kept.

`@kernel(signature)` compiles a function for exactly one signature when its module is imported, or loads it from
the disk cache: no kernel is ever compiled twice on a machine, and none behind the user's back in the middle of
work. `@device` marks a function that only kernels call; it becomes part of its callers.

numba's cache notices an edit of the file that a kernel stands in, but not of the files that it calls into.
Hence a cache folder of our own, named by a digest of all kernel sources: any edit starts a new one. The cache
holds code that will run, so the folder must belong to the user and nobody else may write to it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

assert sys.byteorder == "little", "the kernels swap bytes for a little-endian machine"

_log = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callable[..., Any])

on_compile: Callable[[str], None] | None = None
"""Called with a kernel's name before it is compiled (not when it is loaded from the cache)."""


def _is_private(folder: Path) -> bool:
    """Whether only this user can write to the folder."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _writable_cache_root() -> Path:
    """The first of the usual places that takes a folder of ours; a throw-away folder where none does."""
    chosen = os.environ.get("DURALOG_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    candidates = [Path(chosen)] if chosen else []
    candidates += [Path(home) / "duralog", Path(tempfile.gettempdir()) / f"duralog-{os.getuid()}"]
    for folder in candidates:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="duralog-"))


def _cache_folder() -> Path:
    digest = hashlib.sha256(numba.__version__.encode())
    sources = Path(__file__).parent
    for source in sorted([*sources.glob("*.py"), sources.parent / "format" / "layout.py"]):
        digest.update(source.read_bytes())
    return _writable_cache_root() / f"kernels-{digest.hexdigest()[:16]}"


CACHE_FOLDER = _cache_folder()


@contextmanager
def _our_cache() -> Iterator[None]:
    """numba chooses a kernel's cache folder when it is decorated: ours then, the user's own setting after."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


class _CompileNotice(event.Listener):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        self.name = name

    def on_start(self, started: Any) -> None:
        # Only the kernel itself: the functions that it calls are compiled inside of it.
        if started.data["dispatcher"].py_func.__name__ != self.name:
            return
        _log.info("compiling the kernel %s, once on this machine", self.name)
        if on_compile is not None:
            on_compile(self.name)

    def on_end(self, ended: Any) -> None:
        pass


def kernel(signature: Any) -> Callable[[_F], _F]:
    """Compile for this signature. No lock of Python's is held while a kernel runs."""

    def decorate(function: _F) -> _F:
        notice = _CompileNotice(function.__name__)
        with _our_cache(), event.install_listener("numba:compile", notice):
            compiled: _F = numba.njit(signature, cache=True, nogil=True, boundscheck=False, error_model="numpy")(function)
        return compiled

    return decorate


def device(function: _F) -> _F:
    """A function for kernels to call, compiled into each of them."""
    compiled: _F = numba.njit(nogil=True, boundscheck=False, error_model="numpy")(function)
    return compiled
