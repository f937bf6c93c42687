"""A query is started again if its Python process was too late, and for no other reason."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark.patient_starts import ATTEMPTS, TOO_LATE, patient

_MESSAGES = ("Initializing StreamExecution", "Initializing sources", "Processing new data")


class Started:
    """A query that gets over its start, or ends with an error."""

    def __init__(self, error: str | None) -> None:
        self._error = error
        self._looks = 0

    @property
    def isActive(self) -> bool:  # noqa: N802
        self._looks += 1
        return self._error is None or self._looks < len(_MESSAGES)

    @property
    def status(self) -> dict[str, Any]:
        return {"message": _MESSAGES[min(self._looks, len(_MESSAGES)) - 1]}

    def exception(self) -> Exception | None:
        return None if self._error is None else RuntimeError(self._error)


@pytest.mark.parametrize(
    ("errors", "attempts"),
    [
        ([None], 1),
        ([f"{TOO_LATE}.", f"{TOO_LATE}.", None], 3),
        ([f"{TOO_LATE}.", "there is no topic nope"], 2),
        ([f"{TOO_LATE}."] * 9, ATTEMPTS),
    ],
)
def test_how_often_it_is_started(errors: list[str | None], attempts: int) -> None:
    queries = [Started(error) for error in errors]
    remaining = iter(queries)
    given: list[str] = []

    def start(path: str) -> StreamingQuery:
        given.append(path)
        return cast(StreamingQuery, next(remaining))

    assert cast(object, patient(start)("out")) is queries[attempts - 1]
    assert given == ["out"] * attempts
