"""How kernels are compiled, and where the machine code is kept.

`@kernel(signature)` compiles a function for exactly one signature at its first call, or loads it from the disk
cache: importing takes no time, no kernel is compiled twice on a machine, and `on_compile` is called for each one.
`@device` marks a function that only kernels call; it becomes part of its callers.

numba's cache notices an edit of the file that a kernel is in, but not of the files that it calls. So the cache folder
is named by a digest of all kernel sources: any edit starts a new one. The cache holds code that will run, so the folder
must belong to the user, and no one else may write to it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

# numba needs it at a kernel's first call. numpy loads it lazily, and recurses without end if two threads ask for it.
import numpy.ma  # noqa: F401
from numba.core import event

assert sys.byteorder == "little", "the kernels swap bytes for a little-endian machine"

_log = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS: Any = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}
"""Kernels allocate nothing. So `_nrt` is off: numba would count references to arrays, atomically, at every call."""

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


_compiling = threading.RLock()
"""numba takes the cache folder from a global setting at the moment of decoration: one thread at a time.

A fork waits for it: a child that is forked while another thread compiles would wait for this lock, or for numba's own,
for ever.
"""
os.register_at_fork(before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_compiling.release)


class _CompileNotice(event.Listener):
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


class Kernel:
    """A function that becomes machine code at its first call. It runs without the GIL.

    `run` does the same as a call, with one step less, for callers that call very often.
    """

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function = function
        self.signature = signature
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.run: Callable[..., Any] = self._prepare_and_run

    def __call__(self, *arguments: Any) -> Any:
        return self.run(*arguments)

    def _prepare_and_run(self, *arguments: Any) -> Any:
        self.prepare()
        return self.run(*arguments)

    def prepare(self) -> None:
        """Compile, or load from the cache, without calling."""
        with _compiling:
            if self.run != self._prepare_and_run:
                return
            try:
                self.run = self._compile(cache=True)
            except (OSError, RuntimeError) as error:  # numba's two ways to say that it finds no place for the code
                _log.warning("the kernel cache %s cannot be used (%s): compiling in memory", CACHE_FOLDER, error)
                self.run = self._compile(cache=False)

    def _compile(self, *, cache: bool) -> Callable[..., Any]:
        settings: Any = numba.config
        before = settings.CACHE_DIR
        settings.CACHE_DIR = str(CACHE_FOLDER)
        try:
            with event.install_listener("numba:compile", _CompileNotice(self.__name__)):
                compiled = numba.njit(self.signature, cache=cache, **_OPTIONS)(self.function)
        finally:
            settings.CACHE_DIR = before
        return cast("Callable[..., Any]", compiled)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of the function, for arguments of this signature."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, signature)

    return decorate


def device(function: _F) -> _F:
    """A function for kernels to call, compiled into each of them."""
    return cast("_F", numba.njit(**_OPTIONS)(function))


def inlined(function: _F) -> _F:
    """The same, for a function of the innermost loops: never called, always part of the caller's code."""
    return cast("_F", numba.njit(forceinline=True, **_OPTIONS)(function))
