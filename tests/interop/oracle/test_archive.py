"""A real broker maps the classes that another one has archived: it would start all the same without, but slowly."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, archived_classes, format_directory

pytestmark = pytest.mark.interop


def test_a_broker_maps_the_archive(kafka: KafkaProcess, tmp_path: Path) -> None:
    (option,) = archived_classes(kafka)
    format_directory(kafka, tmp_path / "data")
    with KafkaServer(kafka, tmp_path / "data") as server:
        assert server.topics() == {}
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert option.partition("=")[2] in maps
