"""Errors of the pipeline as a user of Spark sees them: a sentence.

A Python worker sends the JVM what it raised, with the whole Python traceback, and Spark puts that into its own
exception, under a Java stack. The message of a `DuralogError` says all. So around code that Spark calls in a worker,
`plain_errors` leaves the traceback out, by PySpark's own switch. The worker ends with the error, so the switch is on
for this one error only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from duralog.errors import DuralogError

_SWITCH = "SPARK_HIDE_TRACEBACK"


def hide_traceback() -> None:
    """Of the next error in this worker: for one that PySpark itself is about to raise."""
    os.environ[_SWITCH] = "1"


def show_traceback() -> None:
    os.environ.pop(_SWITCH, None)


@contextmanager
def plain_errors() -> Iterator[None]:
    """In a Spark worker: a `DuralogError` raised in here reaches the user without Python's traceback."""
    try:
        yield
    except DuralogError:
        hide_traceback()
        raise
