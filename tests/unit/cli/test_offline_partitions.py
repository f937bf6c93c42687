"""`retain` and `compact` with partitions that are offline, on threads and as a Spark job: each is reported once."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.cli.voice import engine
from duralog.operations.workers import OnSpark
from tests.support import commands
from tests.support.spark.lake_directory import run_here

MISSING = (
    "it is offline: there is no folder {path}/users-0, but replication-offset-checkpoint says that its log reaches"
)


class Session:
    """As much of a Spark session as the jobs ask before their tasks run."""

    @property
    def sparkContext(self) -> Session:  # noqa: N802
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of users-0 was removed, and that of events-7 is not in the metadata."""

    @contextmanager
    def here(name: str, **_: object) -> Iterator[OnSpark]:
        yield OnSpark(Session())  # type: ignore[arg-type]

    for job in ("compact", "retain"):
        run_here(monkeypatch, importlib.import_module(f"duralog.spark.jobs.{job}"))
    monkeypatch.setattr(engine, "on_spark", here)
    path = tmp_path / "data"
    with duralog.open(path, {"log.cleaner.enable": False}) as store:
        for topic, policy in (("users", "compact"), ("events", "delete")):
            store.create_topic(topic, 2, {"cleanup.policy": policy})
            for number in range(2):
                store.partition(topic, number).append([duralog.Record(key=b"k", value=b"v")] * 10)
                store.partition(topic, number).roll()
    shutil.copytree(path / "events-0", path / "events-7")
    shutil.rmtree(path / "users-0")
    return path


@pytest.mark.parametrize("words", [("retain",), ("retain", "--engine", "spark"), ("compact",), ("job", "compact")])
@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_each_is_one_line_and_the_others_are_done(path: Path, words: tuple[str, ...], options: tuple[str, ...]) -> None:
    before = (path / "replication-offset-checkpoint").read_text()
    told = commands.run(*words, path, *options, code=1).stderr.splitlines()
    expected = ["events-7", "users-0"] if "retain" in words else ["users-0"]
    assert sorted(line.split(": ")[2] for line in told) == expected
    assert MISSING.format(path=path) in told[-1]
    assert not (path / "users-0").exists()
    assert (path / "replication-offset-checkpoint").read_text() == before


@pytest.mark.parametrize("words", [("compact",), ("job", "compact")])
def test_compact_counts_it_as_failed(path: Path, words: tuple[str, ...]) -> None:
    objects = [json.loads(line) for line in commands.run(*words, path, "--json", code=1).stdout.splitlines()]
    partitions: dict[int, Any] = {found["partition"]: found["failure"] for found in objects[:-1]}
    assert partitions[0].startswith(MISSING.format(path=path))
    assert partitions[1] is None
    assert (objects[-1]["failed"], objects[-1]["compacted"]) == (1, 1)
    assert objects[-1]["seconds"] == round(objects[-1]["seconds"], 3)


@pytest.mark.parametrize("words", [("compact",), ("job", "compact")])
def test_one_can_be_named(path: Path, words: tuple[str, ...]) -> None:
    told = commands.run(*words, path, "-t", "users", "-p", "0", code=1)
    assert told.stdout.strip() == "0 partitions compacted, 1 failed"
    assert "is not compacted, its cleanup.policy is delete" in commands.run(*words, path, "-t", "events", code=1).stderr


@pytest.mark.parametrize("words", [("retain",), ("job", "retain")])
def test_a_topic_of_which_nothing_else_is_there(path: Path, words: tuple[str, ...]) -> None:
    shutil.copytree(path / "events-0", path / "events-8")
    shutil.rmtree(path / "users-1")
    told = commands.run(*words, path, "-t", "users", code=1).stderr
    assert [line.split(": ")[2] for line in told.splitlines()] == ["users-0", "users-1"]
