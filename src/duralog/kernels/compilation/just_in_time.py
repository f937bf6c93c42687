"""Kernels compiled by numba on the user's machine, and where the machine code is kept.

Only where the package has no machine code that fits (`machine_code`). No kernel is compiled twice on a machine: numba
keeps it in a cache folder, which is named by a digest of all sources (`sources`) and the version of numba; numba itself
checks Python, the CPU and its features. The cache holds code that will run, so the folder must belong to the user, and
no one else may write to it. Several processes may fill it at once: numba writes files under temporary names and renames
them.
"""

from __future__ import annotations

import logging
import os
import pickle
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numba

# numba needs it at a kernel's first call. numpy loads it lazily, and recurses without end if two threads ask for it.
import numpy.ma  # noqa: F401
from numba.core import event

from duralog.kernels.compilation.sources import OPTIONS, digest_of_sources

_UNUSABLE_CACHE = (OSError, RuntimeError, EOFError, pickle.PickleError, ValueError, AttributeError, ImportError)
"""numba finds no place for the code, or files that it did not write, or only in part: unpickling may raise anything."""

_log = logging.getLogger(__name__)


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


CACHE_FOLDER = _writable_cache_root() / f"kernels-{digest_of_sources()}-numba-{numba.__version__}"


class _CompileNotice(event.Listener):
    def __init__(self, name: str, on_compile: Callable[[str], None]) -> None:
        self.name = name
        self.on_compile = on_compile

    def on_start(self, started: Any) -> None:
        # Only the kernel itself: the functions that it calls are compiled inside of it.
        if started.data["dispatcher"].py_func.__name__ == self.name:
            self.on_compile(self.name)

    def on_end(self, ended: Any) -> None:
        pass


def compile_kernel(
    function: Callable[..., Any], signature: Any, on_compile: Callable[[str], None]
) -> Callable[..., Any]:
    """Compile, or load from the cache. `on_compile` is called with the name before it is compiled.

    One thread at a time: numba takes the cache folder from a global setting at the moment of decoration.
    """
    try:
        return _compile(function, signature, on_compile, cache=True)
    except _UNUSABLE_CACHE as error:
        _log.warning("the kernel cache %s cannot be used (%s): compiling in memory", CACHE_FOLDER, error)
        return _compile(function, signature, on_compile, cache=False)


def _compile(
    function: Callable[..., Any], signature: Any, on_compile: Callable[[str], None], *, cache: bool
) -> Callable[..., Any]:
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(CACHE_FOLDER)
    try:
        with event.install_listener("numba:compile", _CompileNotice(function.__name__, on_compile)):
            compiled = numba.njit(signature, cache=cache, **OPTIONS)(function)
    finally:
        settings.CACHE_DIR = before
    return cast("Callable[..., Any]", compiled)


def device(function: Callable[..., Any], **options: Any) -> Any:
    return numba.njit(**options, **OPTIONS)(function)
