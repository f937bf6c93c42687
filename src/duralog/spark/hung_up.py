"""No traceback of a Python worker that Spark has hung up on.

Spark closes the connection to a worker when it needs no more rows, as after `show()`. The worker's next write fails,
and PySpark's daemon prints a `BrokenPipeError` with its traceback to stderr. The query has succeeded by then, so
the message is not printed. All other errors are, also a `BrokenPipeError` of a user's own function.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Any

_print_exc = traceback.print_exc
_WRITERS = ("pyarrow", "socket")
"""PySpark writes through them."""


def end_quietly_when_hung_up() -> None:
    """Call it in a worker, or in the daemon before it forks workers. Calling it again does nothing."""
    traceback.print_exc = _print_exc_unless_hung_up


def _print_exc_unless_hung_up(*args: Any, **options: Any) -> None:
    error = sys.exc_info()[1]
    if not (isinstance(error, BrokenPipeError) and _is_of_pyspark(error)):
        _print_exc(*args, **options)


def _is_of_pyspark(error: BaseException) -> bool:
    """Whether a write of PySpark's own has failed."""
    packages = [_package(frame) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((package for package in reversed(packages) if package not in _WRITERS), "") == "pyspark"


def _package(frame: FrameType) -> str:
    # The name of a module that was started with -m is in its spec alone.
    spec = frame.f_globals.get("__spec__")
    name: str = frame.f_globals.get("__name__", "") if spec is None else spec.name
    return name.partition(".")[0]
