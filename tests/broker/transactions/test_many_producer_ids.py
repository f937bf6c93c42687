"""Clients that use very many producer ids: what they cost runs beside the event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.storage.append.producer_state import FrozenProducers
from duralog.storage.disk.file_system import LocalFileSystem
from tests.support.broker.admin_desk import DESCRIBE_PRODUCERS, make
from tests.support.broker.raw_client import RawClient

PRODUCE = 0
SECONDS = 60


def produce(client: RawClient, producer: int, value: bytes) -> Any:
    batch = record_batch.encode([Record(value=value)], producer_id=producer, producer_epoch=0, base_sequence=0)
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    answer = client.ask(PRODUCE, 8, {"acks": 1, "timeout": 1000, "topic_data": topics})
    return answer.responses[0].partition_responses[0]


def test_snapshots_and_listings_are_not_made_by_the_loop(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(client, "orders", segment_bytes=str(1 << 20))
    by: dict[str, set[str]] = {"snapshot": set(), "entries": set(), "write": set()}
    has_written = threading.Event()

    def watch(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(self: Any, *arguments: Any, **options: Any) -> Any:
            result = work(self, *arguments, **options)
            if owner is FrozenProducers or arguments[0].endswith(".snapshot"):
                by[name].add(threading.current_thread().name)
                if name == "write":
                    has_written.set()
            return result

        monkeypatch.setattr(owner, name, watched)

    watch(FrozenProducers, "snapshot")
    watch(FrozenProducers, "entries")
    watch(LocalFileSystem, "write")
    for producer in range(60):
        assert produce(client, producer, bytes(20_000)).error_code == 0
    asked = {"topics": [{"name": "orders", "partition_indexes": [0]}]}
    (topic,) = client.ask(DESCRIBE_PRODUCERS, 0, asked).topics
    assert len(topic.partitions[0].active_producers) == 60
    assert has_written.wait(SECONDS)
    for kind, names in by.items():
        assert names, kind
        assert "duralog-broker" not in names, kind
