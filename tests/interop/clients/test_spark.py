"""Spark's Kafka connector reads and writes through the broker, and `format("duralog")` reads the files beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from oracle.kafka_process import KafkaProcess
from tests.support.interop.served_directory import ServedDirectory
from tests.support.places import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.spark]


@pytest.fixture(scope="module")
def found(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`kafka` makes sure that Java and Maven are there."""
    folder = tmp_path_factory.mktemp("spark")
    with ServedDirectory(folder / "data") as broker:
        arguments = [broker.bootstrap, str(folder / "data"), str(folder / "checkpoint")]
        command = [sys.executable, "-m", "tests.support.interop.spark_connector_process", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        assert broker.errors == []
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_batches(found: dict[str, Any]) -> None:
    assert found["written and read"]
    assert found["up to an offset"] == 10


def test_a_stream_from_the_files_to_a_topic(found: dict[str, Any]) -> None:
    assert found["streamed"]


def test_the_files_are_whole_while_the_broker_writes(found: dict[str, Any]) -> None:
    reads = found["live"]
    assert all(read["acknowledged"] <= read["read"] and not read["gaps"] for read in reads), reads
    assert reads[0]["read"] < reads[-1]["read"], "the broker did not write meanwhile"
    assert found["all"]
