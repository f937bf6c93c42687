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


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Callable[[bytes], dict[str, Any]]:
    """duralog's readers, in the words of Kafka's: the plain one and the compiled one."""
    return READERS[request.param]
