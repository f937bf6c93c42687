"""The cache of jars and classes, without Kafka: made once, whole or not at all, by any number of processes."""

from __future__ import annotations

import os
import shutil
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
    assert list(cache.iterdir()) == []


def test_another_process_may_be_first(source: Path, cache: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "jar").write_text("ours")
        theirs = cache / f"jars-{kafka_jars._digest([source])}"
        theirs.mkdir()
        (theirs / "jar").write_text("theirs")

    folder = kafka_jars._made_once("jars", [source], make)
    assert (folder / "jar").read_text() == "theirs"
    assert list(cache.iterdir()) == [folder]


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(KafkaMissingError, match=r"`java` is not on the PATH.*apt-get install maven openjdk"):
        kafka_jars._require("java")
