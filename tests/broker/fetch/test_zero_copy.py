"""Records go from the file to the socket by the kernel, and from the socket to the file in one write.

Every way by which Python could touch their bytes is counted: reads of files, sends of buffers, and writes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.format import record_batch
from duralog.format.batches import scan
from tests.support.broker.raw_client import RawClient
from tests.support.broker.record_desk import FETCH, PRODUCE, batch, records

_BATCHES = 1500
_SLICE_BYTES = 1 << 20


class Counted:
    """Bytes that went through each call, in this process."""

    def __init__(self) -> None:
        self.sent_by_kernel = 0
        self.sent_from_memory = 0
        self.read_into_memory = 0
        self.largest_read = 0
        self.written: list[Any] = []


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The client of these tests sends with `sendall`, so all that is sent with `send` is the broker's."""
    counted = Counted()
    sendfile, send, pread, preadv, pwrite = os.sendfile, socket.socket.send, os.pread, os.preadv, os.pwrite

    def counting_sendfile(*arguments: Any) -> int:
        sent = sendfile(*arguments)
        counted.sent_by_kernel += sent
        return sent

    def counting_send(self: socket.socket, data: Any, *flags: int) -> int:
        sent = send(self, data, *flags)
        counted.sent_from_memory += sent
        return sent

    def counting_pread(descriptor: int, size: int, position: int) -> bytes:
        data = pread(descriptor, size, position)
        counted.read_into_memory += len(data)
        counted.largest_read = max(counted.largest_read, len(data))
        return data

    def counting_preadv(*arguments: Any) -> int:
        count = preadv(*arguments)
        counted.read_into_memory += count
        counted.largest_read = max(counted.largest_read, count)
        return count

    def noting_pwrite(descriptor: int, data: Any, position: int) -> int:
        counted.written.append(data)
        return pwrite(descriptor, data, position)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("the broker has another way to send or to read")

    monkeypatch.setattr(os, "sendfile", counting_sendfile)
    monkeypatch.setattr(socket.socket, "send", counting_send)
    monkeypatch.setattr(socket.socket, "sendmsg", refused)
    monkeypatch.setattr(socket.socket, "sendfile", refused)
    monkeypatch.setattr(os, "pread", counting_pread)
    monkeypatch.setattr(os, "preadv", counting_preadv)
    monkeypatch.setattr(os, "pwrite", noting_pwrite)
    return counted


@pytest.fixture
def filled(broker: Broker) -> bytes:
    """What the log holds: many MB, of batches of 16 KB."""
    broker.store.create_topic("t", 1)
    log = broker.store.partition("t", 0)
    content = record_batch.encode(records(*[os.urandom(100) for _ in range(150)]))
    for _ in range(_BATCHES):
        log.append_batches(bytearray(content))
    log.roll()
    log.append_batches(bytearray(content))
    return content


def _fetch(offset: int) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": _SLICE_BYTES,
        "current_leader_epoch": -1,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": _SLICE_BYTES,
        "rack_id": "",
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def test_python_touches_no_byte_of_what_is_fetched(
    broker: Broker, filled: bytes, counted: Counted, connect: Callable[[], RawClient]
) -> None:
    client = connect()
    total = (_BATCHES + 1) * len(filled)
    assert total > 20 << 20
    offset, received, answers = 0, 0, 0
    while offset < 150 * (_BATCHES + 1):
        found = client.ask(FETCH, 12, _fetch(offset)).responses[0].partitions[0]
        assert found.error_code == 0
        whole = list(scan(found.records))
        offset = whole[-1].last_offset + 1
        received += len(found.records)
        answers += 1
    assert received >= total
    assert counted.sent_by_kernel == received
    # What stands around the records: some hundred bytes an answer.
    assert counted.sent_from_memory < 200 * answers
    # The headers of a few batches, to find where an offset is: at most a page at a time, from an index entry on.
    assert counted.largest_read <= 4096
    assert counted.read_into_memory < 16_384 * answers
    assert counted.read_into_memory < received / 50


def test_what_is_produced_is_written_once_from_where_it_was_received(
    broker: Broker, counted: Counted, connect: Callable[[], RawClient]
) -> None:
    broker.store.create_topic("t", 1)
    client = connect()
    contents = [batch(*[os.urandom(100)] * 100) for _ in range(50)]
    received = broker.server.receive_buffer.obj
    counted.written.clear()
    for content in contents:
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": content}]}]
        answer = client.ask(PRODUCE, 9, {"acks": 1, "timeout": 1000, "topic_data": topics})
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert [len(data) for data in counted.written] == [len(content) for content in contents]
    assert all(isinstance(data, memoryview) and data.obj is received for data in counted.written)
