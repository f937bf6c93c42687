"""Requests made before the clock starts, and a connection that sends them and counts the answers."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from duralog.broker.wire import messages
from duralog.format import record_batch
from duralog.format.record import Record

PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 18, 19
PRODUCE_VERSION, FETCH_VERSION = 9, 12
TOPIC = "bench"
_SECONDS = 60.0
_LATEST = -1
_RECEIVED_AT_ONCE = 4 << 20


def batch_of(size_bytes: int, record_bytes: int = 100) -> tuple[bytes, int]:
    """A batch of about this size, of records without keys, and how many they are."""
    now_ms = int(time.time() * 1000)
    count = max(1, size_bytes // (record_bytes + 8))
    records = [Record(value=os.urandom(record_bytes), timestamp_ms=now_ms) for _ in range(count)]
    return record_batch.encode(records), count


def produce_request(batch: bytes, partition: int, *, acks: int = 1) -> bytes:
    topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
    return frame(PRODUCE, PRODUCE_VERSION, {"acks": acks, "timeout": 30_000, "topic_data": [topic]})


def fetch_request(partition: int, offset: int, max_bytes: int) -> bytes:
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    fields = {
        "replica_id": -1,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return frame(FETCH, FETCH_VERSION, fields)


def frame(api_key: int, version: int, fields: dict[str, Any]) -> bytes:
    """A whole request. All have the same correlation id: answers come in order."""
    header = struct.pack(">hhih", api_key, version, 1, 5) + b"bench"
    if messages.is_flexible(api_key, version):
        header += b"\0"
    body = messages.encode_request(api_key, version, fields)
    return struct.pack(">i", len(header) + len(body)) + header + body


class Connection:
    """One connection to a broker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(_RECEIVED_AT_ONCE))

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, api_key: int, version: int, fields: dict[str, Any]) -> Any:
        self.socket.sendall(frame(api_key, version, fields))
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        is_tagged = api_key != API_VERSIONS and messages.is_flexible(api_key, version)
        return messages.decode_response(api_key, version, answer[5 if is_tagged else 4 :])

    def api_versions(self) -> None:
        self.ask(API_VERSIONS, 0, {})

    def create_topic(self, partitions: int) -> None:
        """Returns when every partition has a leader."""
        topic = {
            "name": TOPIC,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        answer = self.ask(CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000, "validate_only": False})
        if answer.topics[0].error_code:
            raise RuntimeError(f"the topic could not be made: error {answer.topics[0].error_code}")
        # Once the broker tells where each ends, it also takes records for each.
        while len(self.end_offsets(partitions)) < partitions:
            time.sleep(0.01)

    def end_offsets(self, partitions: int) -> list[int]:
        """Of those that have a leader."""
        asked = [
            {"partition_index": number, "timestamp": _LATEST, "current_leader_epoch": -1}
            for number in range(partitions)
        ]
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": asked}]}
        found = self.ask(LIST_OFFSETS, 5, fields).topics[0].partitions
        return [one.offset for one in sorted(found, key=lambda one: one.partition_index) if one.error_code == 0]

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive_answer(self) -> int:
        """Read one answer and forget it. Returns how many bytes it had."""
        (size,) = struct.unpack(">i", self._receive(4))
        left: int = size
        while left:
            received = self.socket.recv_into(self._buffer, min(left, len(self._buffer)))
            if not received:
                raise ConnectionError("the broker has closed the connection")
            left -= received
        return int(size)

    def answers(self) -> Iterator[int]:
        """How many answers were received at once, again and again. They are small, and all of one size."""
        first = self.receive_answer() + 4
        yield 1
        held = 0
        while True:
            received = self.socket.recv_into(self._buffer)
            if not received:
                raise ConnectionError("the broker has closed the connection")
            held += received
            yield held // first
            held %= first

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            received += part
        return bytes(received)


def send_all(connections: Sequence[Connection], requests: Sequence[bytes], count: int, in_flight: int) -> None:
    """Send so many of the requests over each connection, in turn, with so many under way on each at a time."""
    answers = [connection.answers() for connection in connections]
    sent = [0] * len(connections)
    done = [0] * len(connections)

    def send(which: int, how_many: int) -> None:
        for _ in range(min(how_many, count - sent[which])):
            # Each connection begins with another request, so that they do not all write to the same partition.
            place = (sent[which] + which * len(requests) // len(connections)) % len(requests)
            connections[which].send(requests[place])
            sent[which] += 1

    for which in range(len(connections)):
        send(which, in_flight)
    while any(done[which] < count for which in range(len(connections))):
        for which in range(len(connections)):
            if done[which] < count:
                answered = next(answers[which])
                done[which] += answered
                send(which, answered)
