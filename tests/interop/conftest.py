"""One JVM with Apache Kafka for all tests of this folder.

Without Java, Maven or the network they are skipped, with the reason. With `CI=true` nothing may be skipped: they fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oracle.kafka_jars import KafkaMissingError, class_path
from oracle.kafka_process import KafkaProcess
from oracle.truth import READERS
from tests.support.interop.served_directory import ServedDirectory

QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}
"""Groups come together at once."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaProcess]:
    try:
        path = class_path()
    except KafkaMissingError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka must run in CI: {reason}")
        pytest.skip(f"Apache Kafka cannot be run here: {reason}")
    with KafkaProcess(path) as process:
        yield process


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    """One broker of duralog's for the clients of all test files, each with topics and groups of its own."""
    directory = tmp_path_factory.mktemp("broker") / "data"
    with ServedDirectory(directory, configs=QUICK) as broker:
        yield broker
        assert broker.errors == []


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Callable[[bytes], dict[str, Any]]:
    """duralog's readers, in the words of Kafka's: the plain one and the compiled one."""
    return READERS[request.param]
