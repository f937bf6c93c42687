"""The engine of a use case: threads of this process, or Spark.

Nothing here imports PySpark: the caller that starts a session passes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Threads:
    count: int


@dataclass(frozen=True, slots=True)
class OnSpark:
    session: SparkSession


Workers = Threads | OnSpark
TWO_THREADS = Threads(2)


def ignore_result(_: object) -> None:
    """For a use case whose results are only needed at the end."""
