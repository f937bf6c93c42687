"""Streaming queries that start although the machine is very busy.

Spark gives the Python process of a streaming source ten seconds to start and to connect back, and has no setting for
it: the number is in the code of `PythonWorkerFactory.createSimpleWorker`. A query whose process came too late has ended
before it began. Nothing was read, and its checkpoint holds nothing but its id; so it is started again, as an operator
would start it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

ATTEMPTS = 5
TOO_LATE = "Python worker failed to connect back"
_INITIALIZING = "Initializing"
"""`StreamExecution` first, for a moment, then the sources."""


@cache
def start_queries_patiently() -> None:
    """From here on, every query of this process is started again that ended because its Python process was too late."""
    DataStreamWriter.start = patient(DataStreamWriter.start)  # type: ignore[method-assign]


def patient(start: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    @wraps(start)
    def started(*arguments: Any, **named: Any) -> StreamingQuery:
        for _ in range(ATTEMPTS):
            query = start(*arguments, **named)
            while query.isActive and query.status["message"].startswith(_INITIALIZING):
                time.sleep(0.01)
            error = query.exception()
            if error is None or TOO_LATE not in str(error):
                break
        return query

    return started
