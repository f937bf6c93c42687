"""`duralog config` and Kafka: what one stores in a directory the other finds, and the command changes both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory

pytestmark = pytest.mark.interop

RETENTION, MAX, THREADS = "log.retention.ms", "max.connections", "log.cleaner.threads"


def config(*arguments: object) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["config", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {each["config"]: each for each in found if "config" in each}


def refusal(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["config", *map(str, arguments)])
    assert result.exit_code == 1, result.output
    return " ".join(result.stderr.split())


def value(found: dict[str, dict[str, Any]], name: str) -> tuple[str, str]:
    return found[name]["value"], found[name]["source"]


def test_there_and_back(kafka: KafkaProcess, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    format_directory(kafka, directory)
    config("set", directory, f"{RETENTION}=86400000", f"{MAX}=500")
    config("set", directory, "--all-brokers", f"{THREADS}=2", f"{MAX}=600")
    with KafkaServer(kafka, directory) as server:
        server.topics()
        found = config("list", server.bootstrap)
        assert value(found, RETENTION) == ("86400000", "this broker")
        assert value(found, MAX) == ("500", "this broker")
        assert value(found, THREADS) == ("2", "all brokers")
        assert value(config("reset", server.bootstrap, MAX), MAX) == ("2147483647", "default")
        assert value(config("set", server.bootstrap, f"{RETENTION}=1000"), RETENTION) == ("1000", "this broker")
        assert value(config("set", server.bootstrap, "--all-brokers", f"{MAX}=700"), MAX) == ("700", "all brokers")
        assert "every connection would be refused" in refusal("set", server.bootstrap, f"{MAX}=0")
        assert server.errors == []
        assert "Cannot update these configs dynamically: [node.id]" in refusal("set", server.bootstrap, "node.id=7")
    found = config("list", directory)
    assert value(found, RETENTION) == ("1000", "this broker")
    assert value(found, MAX) == ("700", "all brokers")
    assert value(found, THREADS) == ("2", "all brokers")
