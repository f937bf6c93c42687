"""How functions become kernels: `@kernel(signature)`, and `@device` for functions that only kernels call.

The machine code comes with the package (`compilation.machine_code`). Where it does not fit, numba compiles a kernel for
exactly one signature at its first call, or loads it from the disk cache (`compilation.just_in_time`): importing takes
no time, no kernel is compiled twice on a machine, and `on_compile` is called for each one. Without `on_compile`, the
first one in a process is logged as a warning, which Python shows unless logging is configured otherwise: the caller
waits for seconds, and can do something about it. Not if `DURALOG_KERNELS` asks for numba.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from duralog.kernels.compilation import machine_code

assert sys.byteorder == "little", "the kernels swap bytes for a little-endian machine"

_log = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callable[..., Any])

on_compile: Callable[[str], None] | None = None
"""Called with a kernel's name before it is compiled (not when it is loaded)."""
_has_warned = False

_compiling = threading.RLock()
"""One thread at a time compiles.

A fork waits for it: a child that is forked while another thread compiles would wait for this lock, or for numba's own,
for ever.
"""
os.register_at_fork(before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_compiling.release)


def _announce(name: str) -> None:
    global _has_warned
    if on_compile is None and not _has_warned and not machine_code.IS_CHOSEN:
        _has_warned = True
        _log.warning("compiling with numba, some seconds, once on this machine: %s", machine_code.WHY_NOT)
    _log.info("compiling the kernel %s", name)
    if on_compile is not None:
        on_compile(name)


class Kernel:
    """A function that is machine code, or becomes it at its first call. It runs without the GIL.

    `run` does the same as a call, with one step less, for callers that call very often.
    """

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function = function
        self.signature = signature
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        shipped = (machine_code.FUNCTIONS or {}).get(self.__name__)
        self.run: Callable[..., Any] = shipped or self._prepare_and_run

    def __call__(self, *arguments: Any) -> Any:
        return self.run(*arguments)

    def _prepare_and_run(self, *arguments: Any) -> Any:
        self.prepare()
        return self.run(*arguments)

    def prepare(self) -> None:
        """Compile, or load from the cache, without calling."""
        with _compiling:
            if self.run == self._prepare_and_run:
                self.run = self._compile()

    def _compile(self) -> Callable[..., Any]:
        from duralog.kernels.compilation.just_in_time import compile_kernel

        return compile_kernel(self.function, self.signature, _announce)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of the function, for arguments of this signature."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, signature)

    return decorate


def device(function: _F) -> _F:
    """A function for kernels to call, compiled into each of them."""
    return _device(function)


def inlined(function: _F) -> _F:
    """The same, for a function of the innermost loops: never called, always part of the caller's code."""
    return _device(function, forceinline=True)


def _device(function: _F, **options: Any) -> _F:
    if machine_code.FUNCTIONS is not None:
        return function
    from duralog.kernels.compilation import just_in_time

    return cast("_F", just_in_time.device(function, **options))
