"""What Spark's Python workers load, and from where."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from duralog.spark.worker_python import _finds_installed_pyspark

pytestmark = pytest.mark.spark


def where(_: object) -> tuple[str, str, str]:
    """Runs in a worker."""
    import os
    import sys

    import pyspark

    return sys.executable, pyspark.__file__, os.environ.get("PYTHONPATH", "")


def test_workers_load_the_installed_pyspark(spark: SparkSession) -> None:
    """Not the one in Spark's zip file, which has no compiled modules."""
    ((executable, module, path),) = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert (executable, module) == (sys.executable, pyspark.__file__)
    assert not [entry for entry in path.split(os.pathsep) if entry.endswith((".zip", ".jar"))]


def test_java_has_our_options_and_those_of_the_site(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    assert jvm.System.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert jvm.System.getProperty("duralog.of.the.site") == "kept"
    assert jvm.System.getProperty("log4j2.configurationFile").endswith("log4j2.properties")
    assert "arrow" not in spark.sparkContext.getConf().get("spark.executor.extraJavaOptions", "")
    assert "log4j2.configurationFile" not in os.environ.get("SPARK_SUBMIT_OPTS", "")


@pytest.mark.parametrize(
    ("name", "value"), [("PYSPARK_PYTHON", "/opt/python/bin/python"), ("SPARK_HOME", "/opt/spark")]
)
def test_the_users_own_interpreter_and_spark_win(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert _finds_installed_pyspark()
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    assert _finds_installed_pyspark()
    monkeypatch.setenv(name, value)
    assert not _finds_installed_pyspark()
