"""Compressed batches that unpack to far more than they are: refused with a code that lets producers split them."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.produce import long_appends
from duralog.broker.produce.long_appends import unpacked_limit
from duralog.broker.wire import error_codes as codes
from duralog.config import TopicConfig
from duralog.format import message_set, record_batch
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec
from duralog.format.record import Record
from tests.support.broker.admin_desk import make, on_loop
from tests.support.broker.raw_client import RawClient

PRODUCE = 0
CODECS = [codec for codec in Codec if codec is not Codec.NONE]
MB = 1 << 20


def produce(client: RawClient, batch: bytes) -> Any:
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    answer = client.ask(PRODUCE, 8, {"acks": 1, "timeout": 1000, "topic_data": topics})
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_a_bomb_is_too_large(broker: Broker, client: RawClient, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_appends, "UNPACKED_TOGETHER_BYTES", 2 * MB)
    monkeypatch.setattr(long_appends, "unpacked_limit", lambda _: 4 * MB)
    make(client, "orders", max_message_bytes=str(2 * MB))
    told = produce(client, record_batch.encode([Record(value=bytes(8 * MB))], codec=codec))
    assert (told.error_code, told.base_offset) == (codes.MESSAGE_TOO_LARGE, -1)
    assert f"at most {4 * MB} bytes" in told.error_message
    for value in (b"small", bytes(3 * MB)):
        assert produce(client, record_batch.encode([Record(value=value)], codec=codec)).error_code == 0
    assert broker.store.partition("orders", 0).end_offset == 2
    assert on_loop(broker, lambda: broker.server.memory.used_bytes) == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_one_of_an_old_format_is_refused_without_unpacking(
    client: RawClient, magic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it was unpacked")

    monkeypatch.setattr("duralog.storage.append.batch_admission.decompress", fail)
    monkeypatch.setattr("duralog.format.message_set.decompress", fail)
    make(client, "orders")
    told = produce(client, message_set.encode([Record(value=bytes(8 * MB))], magic=magic, codec=Codec.GZIP))
    assert told.error_code == codes.INVALID_RECORD


def test_a_thousand_to_one_is_accepted(broker: Broker, client: RawClient) -> None:
    make(client, "orders")
    batch = record_batch.encode([Record(value=bytes(100 * MB))], codec=Codec.ZSTD)
    assert len(batch) * 1000 < 100 * MB
    assert produce(client, batch).error_code == 0
    assert broker.store.partition("orders", 0).end_offset == 1


@pytest.mark.parametrize(
    ("max_message_bytes", "limit"),
    [(1_048_588, 256 * MB), (4 * MB, 512 * MB), (8 * MB, 1024 * MB), (100 * MB, 1024 * MB)],
)
def test_the_limit_follows_the_largest_batch(max_message_bytes: int, limit: int) -> None:
    assert unpacked_limit(TopicConfig().with_overrides({"max.message.bytes": max_message_bytes})) == limit
    assert limit <= DEFAULT_MAX_DECOMPRESSED_BYTES
