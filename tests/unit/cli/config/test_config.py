"""`duralog config` on a log directory that no broker holds."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from tests.support import commands

NODE = "1"


run = partial(commands.run, "config", columns=400)


def objects(*arguments: object) -> dict[str, dict[str, Any]]:
    """What is written as JSON, by the name of the config."""
    found = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    return {each["config"]: each for each in found if "config" in each}


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with duralog.open(str(tmp_path / "data")) as store:
        store.create_topic("t")
    return tmp_path / "data"


def store_configs(directory: Path, resource: str, **configs: str) -> None:
    """As a broker that checked nothing has left them."""
    with duralog.open(str(directory)) as store:
        texts = {name.replace("_", "."): value for name, value in configs.items()}
        store.alter_configs_of(BROKER_RESOURCE, resource, texts)


def test_set_shown_and_reset(directory: Path) -> None:
    assert run("list", directory).stdout.splitlines() == [
        "config               value  from",
        "min.insync.replicas  1      all brokers",
    ]
    assert run("set", directory, "max.connections=500", "log.retention.ms=1000").stdout.splitlines() == [
        "config            value  from",
        "log.retention.ms  1000   this broker",
        "max.connections   500    this broker",
    ]
    with duralog.open(str(directory)) as store:
        assert store.configs_of(BROKER_RESOURCE, NODE) == {"max.connections": "500", "log.retention.ms": "1000"}
        assert store.topic_config("t").retention_ms == 1000
    assert objects("get", directory, "max.connections") == {
        "max.connections": {
            "kind": "config",
            "config": "max.connections",
            "value": "500",
            "source": "this broker",
            "read_only": False,
            "without_effect": [],
        }
    }
    assert objects("reset", directory, "max.connections")["max.connections"]["source"] == "default"
    with duralog.open(str(directory)) as store:
        assert store.configs_of(BROKER_RESOURCE, NODE) == {"log.retention.ms": "1000"}


def test_for_all_brokers_and_reset_everywhere(directory: Path) -> None:
    run("set", directory, "--all-brokers", "max.connections=7")
    assert objects("list", directory)["max.connections"]["source"] == "all brokers"
    run("set", directory, "max.connections=8")
    assert objects("list", directory)["max.connections"]["value"] == "8"
    run("reset", directory, "max.connections")
    assert "max.connections" not in objects("list", directory)
    with duralog.open(str(directory)) as store:
        assert "max.connections" not in store.configs_of(BROKER_RESOURCE, ALL_BROKERS)


def test_the_place_may_be_an_option(directory: Path) -> None:
    run("set", "--data", directory, "max.connections=9")
    assert objects("get", "-d", directory, "max.connections")["max.connections"]["value"] == "9"
    run("reset", "-d", directory, "max.connections")


@pytest.mark.parametrize("resource", [ALL_BROKERS, NODE])
def test_what_a_broker_ignores_is_shown_and_reset(directory: Path, resource: str) -> None:
    store_configs(directory, resource, max_connections="0", a_plugins_own="1")
    whose = "all brokers" if resource == ALL_BROKERS else "this broker"
    why = "max.connections is 0, so every connection would be refused: set 1 or more"
    assert f"# max.connections: '0' is stored for {whose} and has no effect: {why}" in run("list", directory).stdout
    assert objects("list", directory)["max.connections"]["without_effect"] == [
        {"value": "0", "source": whose, "reason": why}
    ]
    run("set", directory, "log.retention.ms=1000")
    run("reset", directory, "max.connections")
    assert "max.connections" not in objects("list", directory)


def test_values_of_the_start(directory: Path, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("max.connections=50\nlog.retention.ms=7\n")
    run("set", directory, "log.retention.ms=8")
    found = objects("list", directory, "--server-properties", properties)
    assert (found["max.connections"]["value"], found["max.connections"]["source"]) == ("50", "start")
    assert (found["log.retention.ms"]["value"], found["log.retention.ms"]["source"]) == ("8", "this broker")


def test_all_and_defaults(directory: Path) -> None:
    found = objects("list", directory, "--all")
    assert len(found) > 200
    assert found["ssl.key.password"]["value"] is None
    assert found["node.id"]["read_only"]
    assert not found["max.connections"]["read_only"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("max.connections=0", "max.connections is 0, so every connection would be refused: set 1 or more"),
        ("max.connections=x", "it must be a whole number of 32 bits, at least 0"),
        ("max.connection.creation.rate=0", "Invalid max.connection.creation.rate 0"),
        ("listener.name.plaintext.max.connections=0", "Invalid max.connections 0"),
        ("max.connections.per.ip=0", "max.connections.per.ip can be set to zero only if"),
        ("node.id=5", "Cannot update these configs dynamically: [node.id]"),
        ("log.retention.ms=x", "Not a number of type LONG"),
        ("max.conections=5", "there is no config max.conections; did you mean max.connections"),
        ("retention.ms=5", "retention.ms is a topic config; to set it for all topics, use log.retention.ms"),
    ],
)
def test_refused(directory: Path, setting: str, reason: str) -> None:
    result = run("set", directory, setting, code=1)
    assert reason in result.stderr
    assert "Exception" not in result.stderr
    assert objects("list", directory).keys() == {"min.insync.replicas"}


def test_names_that_are_not_there(directory: Path) -> None:
    assert "did you mean max.connections" in run("get", directory, "max.conections", code=1).stderr
    assert "there is no config nope" in run("reset", directory, "nope", code=1).stderr
    result = run("reset", directory, "max.connections")
    assert "# max.connections: it was not set" in result.stdout


@pytest.mark.parametrize("command", ["get", "set", "reset"])
def test_wrong_usage(directory: Path, command: str) -> None:
    assert "which config?" in run(command, directory, code=2).stderr
    assert "which config?" in run(command, "--data", directory, code=2).stderr
    assert "where?" in run(command, "max.connections=5", code=2).stderr
    assert "give one of them" in run(command, directory, "x=y", "--data", directory, code=2).stderr
    assert "there is no such directory" in run(command, directory / "missing", "max.connections=5", code=1).stderr


def test_a_directory_that_is_in_use(directory: Path) -> None:
    with duralog.open(str(directory)):
        assert "give its HOST:PORT" in run("set", directory, "max.connections=5", code=1).stderr
        run("list", directory)


def test_quiet(directory: Path) -> None:
    result = run("reset", directory, "max.connections", "--quiet")
    assert (result.stdout, result.stderr) == ("", "")


def test_nothing_is_set(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    assert "no configs but Kafka's defaults" in run("list", tmp_path).stdout
