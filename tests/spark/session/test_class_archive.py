"""The archive of classes that lets Spark's JVMs start quickly in tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import class_archive

pytestmark = pytest.mark.spark


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive, "ROOT", tmp_path)
    return tmp_path / "build"


def test_it_is_used_once_it_is_there(build: Path) -> None:
    assert class_archive.java_options() == class_archive.QUICK_TO_START
    archive = class_archive._archive()
    assert archive is not None
    assert archive.parent == build
    build.mkdir()
    archive.touch()
    assert class_archive.java_options() == f"{class_archive.QUICK_TO_START} -XX:SharedArchiveFile={archive}"
    class_archive.make()
    assert archive.stat().st_size == 0, "it is not made again"


def test_each_java_has_its_own(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    before = class_archive._archive()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    other = class_archive._archive()
    os.utime(java, ns=(0, 0))
    assert len({before, other, class_archive._archive()}) == 3
    java.unlink()
    assert class_archive._archive() is None
    assert class_archive.java_options() == class_archive.QUICK_TO_START


def test_the_session_of_the_tests_maps_what_there_was(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    started_with = list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    chosen = os.environ["SPARK_SUBMIT_OPTS"].split()
    assert set(chosen) <= set(started_with)
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    for option in chosen:
        name, _, archive = option.partition("=")
        assert name != "-XX:SharedArchiveFile" or archive in maps
