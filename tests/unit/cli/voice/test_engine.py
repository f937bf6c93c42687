"""`--engine`: a command is declared once, `duralog job NAME` is its alias; options of another engine are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import duralog
from duralog.cli.voice import engine
from duralog.command_line import app
from duralog.operations.workers import OnSpark

THREADS_ONLY = {
    "compact": {"--threads", "--explain", "--records", "--now"},
    "repair": set(),
    "retain": set(),
    "stats": {"--threads", "--partition", "--html"},
    "verify": {"--threads"},
}
"""By command: the options that its alias lacks, besides `--engine`."""
every_command = pytest.mark.parametrize("command", sorted(THREADS_ONLY))


def told(*words: object) -> str:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "300"})
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def options(*path: str) -> set[str]:
    found: Any = typer.main.get_command(app)
    for name in path:
        found = found.commands[name]
    return {option.opts[0] for option in found.params if option.param_type_name == "option"}


@every_command
def test_the_alias_has_the_options_of_the_command(command: str) -> None:
    assert options(command) - options("job", command) == {"--engine", *THREADS_ONLY[command]}
    assert options("job", command) <= options(command)


@every_command
def test_options_of_the_other_engine_are_refused(command: str, tmp_path: Path) -> None:
    assert "--master needs --engine spark, not --engine threads" in told(command, tmp_path, "--master", "local")
    assert "--conf needs --engine spark" in told(command, tmp_path, "--conf", "a=b")
    if "--threads" in options(command):
        assert "--threads needs --engine threads" in told(command, tmp_path, "--engine", "spark", "--threads", "2")
    assert "--engine: 'dask' is none of threads, spark" in told(command, tmp_path, "--engine", "dask")


def test_what_only_threads_can_do_is_refused_on_spark(tmp_path: Path) -> None:
    on_spark = ("--engine", "spark")
    assert "--explain needs --engine threads" in told("compact", tmp_path, *on_spark, "--explain")
    assert "--partition needs --engine threads" in told("stats", tmp_path, *on_spark, "-p", "0")
    assert "--html needs --engine threads" in told("stats", tmp_path, *on_spark, "--html", "x.html")
    assert "--shuffled needs --engine spark" in told("compact", tmp_path, "--rounds")
    assert "is a URL" in told("verify", "s3://bucket/logs")


class Asked(Exception):
    """A session was asked for."""


@every_command
def test_the_alias_asks_for_the_session_that_the_command_asks_for(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders-0").mkdir()
    asked: list[object] = []

    @contextmanager
    def on_spark(name: str, **given: object) -> Iterator[OnSpark]:
        asked.append((name, given))
        raise Asked
        yield

    monkeypatch.setattr(engine, "on_spark", on_spark)
    more = ["--retention-ms", "1"] if command == "retain" else []
    words = [str(tmp_path), *more, "--master", "local[3]", "--conf", "spark.x=1"]
    for line in ([command, "--engine", "spark"], ["job", command]):
        assert isinstance(CliRunner().invoke(app, [*line, *words]).exception, Asked)
    assert asked == [(command, {"master": "local[3]", "conf": ["spark.x=1"]})] * 2


@pytest.mark.parametrize(("command", "word"), [("compact", "explain"), ("stats", "chart")])
def test_the_help_of_an_alias_promises_nothing_that_only_threads_can_do(command: str, word: str) -> None:
    assert word in CliRunner().invoke(app, [command, "--help"]).stdout
    assert word not in CliRunner().invoke(app, ["job", command, "--help"]).stdout
    line = next(
        line for line in CliRunner().invoke(app, ["job", "--help"]).stdout.splitlines() if f" {command} " in line
    )
    assert word not in line


@pytest.mark.parametrize("job", [*sorted(THREADS_ONLY), "reindex", "upgrade", "export", "snapshot"])
def test_names_are_checked_before_spark_starts(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_spark(name: str, **given: object) -> Any:
        raise Asked

    for module in ("cli.voice.engine", *(f"cli.job.{name}" for name in ("reindex", "upgrade", "export", "snapshot"))):
        monkeypatch.setattr(f"duralog.{module}.on_spark", on_spark)
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("orders", 1)
    words = ["job", job, str(tmp_path / "data"), *([str(tmp_path / "lake")] if job in {"export", "snapshot"} else [])]
    result = CliRunner().invoke(app, [*words, "-t", "ordres"])
    assert "there is no topic ordres in" in result.stderr
    assert "did you mean orders?" in result.stderr
    assert isinstance(CliRunner().invoke(app, [*words, "-t", "orders"]).exception, Asked)
