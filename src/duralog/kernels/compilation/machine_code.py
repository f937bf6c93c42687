"""The machine code that comes with the package: every kernel, compiled when the wheel was built.

`duralog.kernels.compilation` makes it, as one extension module with the kernels for several levels of CPU. This
module chooses the level and loads it: numba is then not needed, and not imported. Where it does not fit (no such file,
other sources than it was made from, another CPU), `FUNCTIONS` is None, `WHY_NOT` says why, and numba compiles.

`DURALOG_KERNELS` overrides the choice: `numba`, or the name of a level (`x86-64-v2`).
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

from duralog.errors import InvalidConfig
from duralog.kernels.compilation.sources import digest_of_sources

NUMBA = "numba"
VARIABLE = "DURALOG_KERNELS"

Functions = dict[str, Callable[..., Any]]

_log = logging.getLogger(__name__)


def _load() -> tuple[Functions | None, str]:
    """The functions by name and the level of CPU, or none and the reason."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == NUMBA:
        return None, f"{VARIABLE}={NUMBA}"
    compiled: Any = None
    found: tuple[str, ...] = ()
    try:
        compiled = importlib.import_module("duralog.kernels.compilation._machine_code")
    except ModuleNotFoundError:
        why = "this install has no machine code"
    except ImportError as error:
        why = f"the package has no machine code for this machine ({error})"
    else:
        if digest_of_sources() == compiled.SOURCES:
            found, why = compiled.levels(), "the machine code of the package needs another CPU"
        else:
            why = "the kernels were edited after their machine code was made"
    if chosen and chosen not in found:
        names = ", ".join([NUMBA, *found])
        raise InvalidConfig(f"{VARIABLE}={chosen} is not available here: {why}. Unset it, or choose one of: {names}")
    if not found:
        _log.debug("kernels are compiled by numba: %s", why)
        return None, why
    level = chosen or found[0]
    return compiled.functions(level), level


FUNCTIONS, _level_or_reason = _load()
LEVEL = _level_or_reason if FUNCTIONS is not None else None
"""The level of CPU that the code in use was made for."""
WHY_NOT = _level_or_reason if FUNCTIONS is None else None
IS_CHOSEN = bool(os.environ.get(VARIABLE))
