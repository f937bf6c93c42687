"""`duralog config` on a running broker."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.broker.broker import Broker
from duralog.client.configs import ConfigClient, plain_reason
from duralog.config import BrokerConfig
from duralog.errors import DuralogError
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from tests.broker.conftest import QUICK
from tests.support import commands
from tests.support.broker.raw_client import RawClient

MAX = "max.connections"


@pytest.fixture
def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.address.port}"


run = partial(commands.run, "config", columns=400)


def objects(*arguments: object) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    return {each["config"]: each for each in found if "config" in each}


def test_set_shown_and_reset(broker: Broker, address: str) -> None:
    run("set", address, f"{MAX}=500", "log.retention.ms=1000")
    assert broker.config.max_connections == 500
    assert broker.store.configs_of(BROKER_RESOURCE, "1") == {MAX: "500", "log.retention.ms": "1000"}
    run("set", address, "--all-brokers", f"{MAX}=600")
    assert broker.store.configs_of(BROKER_RESOURCE, ALL_BROKERS)[MAX] == "600"
    assert broker.config.max_connections == 500
    found = objects("list", address)
    assert (found[MAX]["value"], found[MAX]["source"], found[MAX]["without_effect"]) == ("500", "this broker", [])
    assert found["listeners"]["source"] == "start"
    assert objects("get", address, "num.io.threads")["num.io.threads"]["source"] == "default"
    assert "max.connections  2147483647  default" in run("reset", address, MAX).stdout
    assert broker.config.max_connections == BrokerConfig().max_connections
    assert len(objects("list", address, "--all")) > 200


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (f"{MAX}=0", "max.connections is 0, so every connection would be refused: set 1 or more"),
        ("max.connection.creation.rate=0", "Invalid max.connection.creation.rate 0"),
        ("max.connections.per.ip.overrides=127.0.0.1:0", "the broker can only be reached from there"),
        ("node.id=5", "Cannot update these configs dynamically: [node.id]"),
        ("max.conections=5", "did you mean max.connections"),
    ],
)
def test_refused(broker: Broker, address: str, setting: str, reason: str) -> None:
    result = run("set", address, setting, code=1)
    assert reason in result.stderr
    assert "Exception" not in result.stderr
    assert broker.store.configs_of(BROKER_RESOURCE, "1") == {}


@pytest.mark.parametrize("resource", [ALL_BROKERS, "1"])
def test_the_command_of_the_warning_resets_what_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, resource: str
) -> None:
    with duralog.open(str(tmp_path)) as store:
        store.alter_configs_of(BROKER_RESOURCE, resource, {MAX: "0"})
    with Broker(str(tmp_path), config=BrokerConfig.of(QUICK)) as broker:
        broker.start()
        (line,) = (record.getMessage() for record in caplog.records if "is ignored" in record.getMessage())
        command = line.split("reset it with: duralog config ")[1].split()
        found = objects("list", command[1])[MAX]
        whose = "all brokers" if resource == ALL_BROKERS else "this broker"
        assert found["without_effect"] == [{"value": "0", "source": whose, "reason": None}]
        run(*command)
        assert MAX not in objects("list", command[1])
        assert MAX not in broker.store.configs_of(BROKER_RESOURCE, resource)


def test_one_connection_is_enough() -> None:
    with Broker(None, config=BrokerConfig.of({**QUICK, MAX: 1})) as broker:
        address = f"127.0.0.1:{broker.start().address.port}"
        run("set", address, f"{MAX}=2")
        with RawClient("127.0.0.1", broker.address.port), RawClient("127.0.0.1", broker.address.port):
            result = run("list", address, code=1)
            assert "max.connections" in result.stderr
            assert "--override" in result.stderr


def test_nobody_is_there(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "no broker answers there" in run("list", f"127.0.0.1:{port}", code=1).stderr
    run("list", f"127.0.0.1:{port},{address}")
    assert "'127.0.0.1:99999' is not an address" in run("list", "127.0.0.1:99999", code=1).stderr


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """Something that answers every connection with these bytes."""

    def serve() -> None:
        connected, _ = listener.accept()
        with connected:
            for answer in answers:
                connected.recv(1 << 16)
                connected.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a broker of Kafka's protocol"),
        (struct.pack(">i", -1), "a response of -1 bytes"),
        (struct.pack(">i", 1 << 30), "a response of 1073741824 bytes"),
        (struct.pack(">iii", 8, 1, 1 << 30), "cannot be read"),
        (struct.pack(">iii", 8, 1, -1), "cannot be read"),
        (struct.pack(">iiiii", 16, 1, 0, 0, 0), "none of 0 brokers"),
        (b"", "the broker closed the connection"),
    ],
)
def test_answers_are_not_trusted(answer: bytes, reason: str) -> None:
    with answering(answer) as address, ConfigClient(address) as client, pytest.raises(DuralogError, match=reason):
        client.node_id()


def test_kafkas_words_without_its_exceptions() -> None:
    exception = "org.apache.kafka.common.config.ConfigException"
    wrapped = f"Invalid value {exception}: No. for configuration Invalid dynamic configuration"
    assert plain_reason(wrapped) == "No."
    assert plain_reason("requirement failed: a must be b") == "a must be b"
    assert plain_reason("Cannot update") == "Cannot update"
