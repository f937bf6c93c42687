"""`duralog.testing`: a broker for users' tests, as a fixture, as a plugin and without pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from duralog import Record
from duralog.testing import TestBroker, kafka_broker, running_broker

__all__ = ["kafka_broker"]

OTHERS_TEST = """
import socket

def test_one(kafka_broker):
    socket.create_connection((kafka_broker.host, kafka_broker.port)).close()
    assert kafka_broker.store.topics() == []
    kafka_broker.store.create_topic("mine")

def test_each_has_its_own(kafka_broker):
    assert kafka_broker.store.topics() == []
"""


def test_real_clients_can_use_it(kafka_broker: TestBroker) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce("orders", b"value", b"key")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(60)
        assert message is not None
        assert (message.key(), message.value(), message.offset()) == (b"key", b"value", 0)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    assert kafka_broker.store.partition("orders", 0).end_offset == 1


def test_configs_and_a_directory_of_ones_own(tmp_path: Path) -> None:
    with running_broker({"num.partitions": 3}, data=str(tmp_path)) as broker:
        assert broker.store.config.num_partitions == 3
        broker.store.create_topic("orders")
        assert len(broker.store.partitions("orders")) == 3
    with running_broker(data=str(tmp_path)) as broker:
        assert broker.store.topics() == ["orders"]


def test_clients_find_what_was_made_and_written_by_the_store() -> None:
    with running_broker({"auto.create.topics.enable": False}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        try:
            # Its group may have got its topic by now.
            assert {*consumer.list_topics(timeout=60).topics} <= {"__consumer_offsets"}
            broker.store.create_topic("listed", partitions=2)
            assert len(consumer.list_topics(timeout=60).topics["listed"].partitions) == 2
            broker.store.create_topic("orders", partitions=1)
            broker.store.partition("orders", 0).append([Record(value=b"1 pear")])
            consumer.subscribe(["orders"])
            message = consumer.poll(60)
            assert message is not None
            assert message.value() == b"1 pear"
        finally:
            consumer.close()


def test_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with running_broker():
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("how", ["plugin", "import"])
def test_in_a_project_of_its_own(tmp_path: Path, how: str) -> None:
    (tmp_path / "test_other.py").write_text(OTHERS_TEST)
    arguments = ["-p", "duralog.testing"]
    if how == "import":
        (tmp_path / "conftest.py").write_text("from duralog.testing import kafka_broker\n")
        arguments = []
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert "2 passed" in found.stdout, found.stdout + found.stderr


def test_without_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from duralog.testing import running_broker\n"
        "with running_broker() as broker: print(broker.bootstrap_servers)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.startswith("127.0.0.1:")
