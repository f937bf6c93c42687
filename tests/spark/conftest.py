"""One Spark session for all tests of this folder.

Without Java or PySpark they are skipped, with the reason. With `CI=true` nothing may be skipped: they fail.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _what_is_missing() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return 'PySpark is not installed: pip install "duralog[spark]"'
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=None if java_home is None else os.path.join(java_home, "bin"))
    return "there is no java on the path, nor in JAVA_HOME" if java is None else None


def _skip_or_fail() -> None:
    reason = _what_is_missing()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"Spark must run in CI: {reason}")
    pytest.skip(f"Spark cannot be run here: {reason}", allow_module_level=True)


def pytest_pycollect_makemodule() -> None:
    """Before a module of this folder is imported: most need PySpark to be."""
    _skip_or_fail()


_MODULES_SINCE = {
    "source/test_filters.py": "4.1",
    "source/test_remote_requests.py": "4.2",
    "source/test_stream_reader.py": "4.2",
}
"""The first Spark that has what a module imports."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that an older Spark cannot import."""
    since = _MODULES_SINCE.get(f"{collection_path.parent.name}/{collection_path.name}")
    is_older = since is not None and _what_is_missing() is None and _release(_spark_version()) < _release(since)
    return True if is_older else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of what an older Spark cannot do, with the reason."""
    for item in items:
        mark = item.get_closest_marker("since_spark")
        if mark is not None and _release(_spark_version()) < _release(mark.args[0]):
            item.add_marker(pytest.mark.skip(reason=f"Spark {_spark_version()}: it came with {mark.args[0]}"))


def _spark_version() -> str:
    import pyspark

    return pyspark.__version__


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    _skip_or_fail()
    from duralog.spark.session import local_session
    from duralog.spark.spark_versions import HAS_FILTERS
    from tests.support.spark.patient_starts import start_queries_patiently

    start_queries_patiently()
    settings = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Dduralog.of.the.site=kept"}
    if not HAS_FILTERS:
        # Tests read the setting before they change it.
        settings["spark.sql.python.filterPushdown.enabled"] = "false"
    session = local_session("local[2]", "duralog-tests", settings)
    yield session
    session.stop()
