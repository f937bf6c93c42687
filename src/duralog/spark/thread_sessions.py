"""Writes from every Python thread.

To find a format in Python, the `save` and `start` of Spark ask the session that is active in their thread of the JVM.
Each Python thread has such a thread of its own, and only the one that made the session has a session there: in all
others a write fails with `DATA_SOURCE_NOT_FOUND`. Reads make the session of their frame active for the time they take.
Here the writers of PySpark do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

_Write = Callable[..., Any]


@cache
def let_every_thread_write() -> None:
    """Once in a process: `save` and `start` run with the session of their frame, then and in the future."""
    DataFrameWriter.save = _with_own_session(DataFrameWriter.save)  # type: ignore[method-assign]
    DataStreamWriter.start = _with_own_session(DataStreamWriter.start)  # type: ignore[method-assign]


def _with_own_session(write: _Write) -> _Write:
    @wraps(write)
    def write_with_own_session(writer: Any, *arguments: Any, **options: Any) -> Any:
        with _active(writer._spark):
            return write(writer, *arguments, **options)

    return write_with_own_session


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """The session is that of this thread, for as long as it takes."""
    assert spark._jvm is not None
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
