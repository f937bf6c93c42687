"""The reader of a streaming query whose options or schema are refused: it raises the error at the first call.

PySpark 4.3 loses an error that is raised while it makes the reader: its worker then accesses the missing reader, and
the user sees an `UnboundLocalError`. An error of an existing reader reaches the user.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from duralog.errors import DuralogError
from duralog.spark.plain_errors import plain_errors
from duralog.spark.spark_versions import SupportsTriggerAvailableNow


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Which of these Spark calls first depends on the trigger and on the checkpoint."""

    def __init__(self, error: DuralogError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802
        self._refuse()

    # Spark 4.0 and 4.1 give it no arguments.
    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        with plain_errors():
            raise self._error
