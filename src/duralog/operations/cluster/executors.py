"""The executor of a cluster's tasks: threads of this process, or Spark."""

from __future__ import annotations

from duralog.operations.workers import OnSpark, Workers
from duralog.scanning.executor import Executor, OnProgress
from duralog.scanning.thread_executor import ThreadExecutor


def executor_of(workers: Workers, on_progress: OnProgress | None) -> Executor:
    if not isinstance(workers, OnSpark):
        return ThreadExecutor(workers.count, on_progress)
    from duralog.spark.executor import SparkExecutor

    return SparkExecutor(workers.session, on_progress)
