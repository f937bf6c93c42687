"""No traceback of a Python worker that Spark has hung up on.

Spark closes the connection to a worker when it needs no more rows, as after `show()`. The worker's next write fails,
and PySpark's daemon prints a `BrokenPipeError` with its traceback to stderr. The query has succeeded by then, so
the message is not printed. All other errors are.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

_print_exc = traceback.print_exc


def end_quietly_when_hung_up() -> None:
    """Call it in a worker, or in the daemon before it forks workers. Calling it again does nothing."""
    traceback.print_exc = _print_exc_unless_hung_up


def _print_exc_unless_hung_up(*args: Any, **options: Any) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        _print_exc(*args, **options)
