"""The cache of jars and classes, without Kafka: made once, whole or not at all, by any number of processes."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oracle import kafka_jars
from oracle.kafka_jars import KafkaMissingError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DURALOG_CACHE_DIR", str(tmp_path / "cache"))
    return kafka_jars.cache_folder()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_text("one")
    return path


def test_made_once_for_the_same_inputs(source: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "jar").write_text("content")

    first = kafka_jars._made_once("jars", [source], make)
    assert kafka_jars._made_once("jars", [source], make) == first
    assert len(made) == 1
    assert (first / "jar").read_text() == "content"

    source.write_text("two")
    assert kafka_jars._made_once("jars", [source], make) != first
    assert len(made) == 2


def test_a_failure_leaves_nothing_behind(source: Path, cache: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "half").touch()
        raise KafkaMissingError("no network")

    with pytest.raises(KafkaMissingError, match="no network"):
        kafka_jars._made_once("jars", [source], make)
    assert list(cache.glob("jars-*")) == []


def test_the_second_caller_waits_and_uses_the_result_of_the_first(source: Path) -> None:
    made: list[Path] = []
    second_has_come = threading.Event()

    def make(folder: Path) -> None:
        made.append(folder)
        second_has_come.wait(60)
        (folder / "jar").write_text("content")

    def come_second() -> Path:
        second_has_come.set()
        return kafka_jars._made_once("jars", [source], make)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(kafka_jars._made_once, "jars", [source], make)
        while not made:
            assert not first.done(), "it has made nothing"
            time.sleep(0.001)
        second = threads.submit(come_second)
        assert first.result(60) == second.result(60)
    assert len(made) == 1


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(KafkaMissingError, match=r"`java` is not on the PATH.*apt-get install maven openjdk"):
        kafka_jars._require("java")
