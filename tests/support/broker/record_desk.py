"""Produce and Fetch without sockets: requests go to the handlers as bytes, and answers come back as kio reads them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from duralog.broker.broker import Broker
from duralog.broker.handlers.records import fetch as fetch_handler
from duralog.broker.handlers.records import produce as produce_handler
from duralog.broker.wire import messages
from duralog.broker.wire.request import Answer, DelayedAnswer, FileSlice, RawAnswer, Request
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.format.uuids import uuid_bytes

PRODUCE, FETCH = 0, 1
NO_SUCH_ID = UUID(int=77)


def now_ms() -> int:
    return int(time.time() * 1000)


def records(*values: bytes, key: bytes | None = b"k", timestamp_ms: int | None = None) -> list[Record]:
    timestamp_ms = now_ms() if timestamp_ms is None else timestamp_ms
    return [Record(key=key, value=value, timestamp_ms=timestamp_ms) for value in values]


def batch(*values: bytes, **options: Any) -> bytes:
    """A batch as a client sends it."""
    return record_batch.encode(records(*(values or (b"v",))), **options)


def bytes_of(answer: RawAnswer) -> bytes:
    """The body as the client gets it."""
    sent = b""
    for part in answer.parts:
        if isinstance(part, FileSlice):
            sent += part.file.read(part.position, part.size)  # type: ignore[attr-defined]
        else:
            sent += part
    return sent


def decode(answer: Answer, api_key: int, version: int) -> Any:
    """The answer as a client reads it."""
    if isinstance(answer, Mapping):
        return messages.decode_response(api_key, version, messages.encode_response(api_key, version, answer))
    assert isinstance(answer, RawAnswer), answer
    return messages.decode_response(api_key, version, bytes_of(answer))


class RecordDesk:
    """Asks the handlers of a broker whose loop does not run."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> None:
        self.broker.store.create_topic(
            name, partitions, {key.replace("_", "."): value for key, value in config.items()}
        )

    def topic_id(self, name: str) -> UUID:
        if name not in self.broker.store.topics():
            return NO_SUCH_ID
        topic_id = self.broker.store.topic_id(name)
        assert topic_id is not None
        return UUID(bytes=uuid_bytes(topic_id))

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self.broker.store.partition(topic, partition).end_offset

    # Produce

    def produce_request(
        self,
        version: int,
        topics: Mapping[str, Mapping[int, bytes | None]],
        *,
        acks: int = 1,
        transactional_id: str | None = None,
        client_id: str = "test",
    ) -> Request:
        fields = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": 1000,
            "topic_data": [
                {
                    "name": name,
                    "topic_id": self.topic_id(name),
                    "partition_data": [{"index": number, "records": content} for number, content in partitions.items()],
                }
                for name, partitions in topics.items()
            ],
        }
        body = memoryview(bytearray(messages.encode_request(PRODUCE, version, fields)))
        return Request(PRODUCE, version, 1, client_id, None, body)

    def produce(self, version: int, topics: Mapping[str, Mapping[int, bytes | None]], **options: Any) -> Answer:
        return produce_handler.API.bound_to(self.broker)(self.produce_request(version, topics, **options))

    def produce_one(self, version: int, topic: str, content: bytes | None, partition: int = 0, **options: Any) -> Any:
        """The answer for the only partition."""
        answer = decode(self.produce(version, {topic: {partition: content}}, **options), PRODUCE, version)
        ((only,),) = [one.partition_responses for one in answer.responses]
        assert only.index == partition
        return only

    # Fetch

    def fetch_request(
        self,
        version: int,
        topics: Mapping[str, Sequence[Mapping[str, int]]],
        *,
        forgotten: Mapping[str, Sequence[int]] | None = None,
        **options: Any,
    ) -> Request:
        defaults = {
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        fields = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "rack_id": "",
            "topics": [
                {"topic": name, "topic_id": self.topic_id(name), "partitions": [{**defaults, **one} for one in asked]}
                for name, asked in topics.items()
            ],
            "forgotten_topics_data": [
                {"topic": name, "topic_id": self.topic_id(name), "partitions": list(numbers)}
                for name, numbers in (forgotten or {}).items()
            ],
            **options,
        }
        body = messages.encode_request(FETCH, version, fields)
        return Request(FETCH, version, 1, "test", messages.decode_request(FETCH, version, body), memoryview(body))

    def fetch(self, version: int, topics: Mapping[str, Sequence[Mapping[str, int]]], **options: Any) -> Answer:
        return fetch_handler.API.bound_to(self.broker)(self.fetch_request(version, topics, **options))

    def fetched(self, version: int, topics: Mapping[str, Sequence[Mapping[str, int]]], **options: Any) -> Any:
        return decode(self.fetch(version, topics, **options), FETCH, version)

    def fetch_one(self, version: int, topic: str, offset: int, partition: int = 0, **options: Any) -> Any:
        """The answer for the only partition."""
        asked = {"partition": partition, "fetch_offset": offset}
        for name in ("current_leader_epoch", "last_fetched_epoch", "partition_max_bytes"):
            if name in options:
                asked[name] = options.pop(name)
        ((only,),) = [one.partitions for one in self.fetched(version, {topic: [asked]}, **options).responses]
        assert only.partition_index == partition
        return only


class Answered:
    """Stands where dispatch stands: takes the answer of a `DelayedAnswer` when it comes."""

    def __init__(self, answer: Answer) -> None:
        assert isinstance(answer, DelayedAnswer), answer
        self.later = answer
        self.answers: list[Any] = []
        answer.deliver_to(self.answers.append, lambda code, _: {"error_code": code})

    @property
    def only(self) -> Any:
        (only,) = self.answers
        return only
