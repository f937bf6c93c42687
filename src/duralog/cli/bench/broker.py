"""Measures a broker with one client: the rates of producing and consuming, and their latencies.

| measured | how |
|---|---|
| produce | as fast as the client can, with a short queue; latency from `produce` to the acknowledgement |
| consume | all of it again, from the start |
| end to end | one record at a time; latency from `produce` until a consumer has it |

The topic is created for the measurement and always deleted. The queues of both clients are bounded; latencies are
counted in buckets.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from duralog.cli.bench.latencies import Latencies
from duralog.cli.bench.rows import BROKER, PRODUCE, Row
from duralog.cli.bench.scratch import ended_by_signals
from duralog.cli.voice.failures import say
from duralog.client.connection import client_settings, error_text, errors_of, kafka_client
from duralog.client.topics import BrokerTopics
from duralog.errors import DuralogError

_PREFIX = "duralog-bench-"
_ANSWER_SECONDS = 60.0
_QUEUE_RECORDS = 20_000
_QUEUE_BYTES = 32 << 20
_TIMED_EVERY = 16
"""A callback for every record would mostly measure Python."""
_SHORTEST_FOR_ALL = 10_000
"""With fewer records than this, each one is timed."""
_AT_ONCE = 1_000
_END_TO_END_RECORDS = 1_000
_END_TO_END_SECONDS = 2.0
_PAUSE_SECONDS = 0.001
_LEAST_MESSAGE_BYTES = 1 << 20

Begin = Callable[[str], None]
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    record_bytes: int
    codec: str
    acks: str
    seconds: float | None
    records: int | None
    """One of the two."""


def broker_rows(address: str, load: BrokerLoad, begin: Begin, advance: Advance) -> Iterator[Row]:
    topics = BrokerTopics(address)
    with ended_by_signals(), _own_topic(topics, load) as topic, errors_of(address):
        begin(PRODUCE)
        produced = _produce(address, topic, load, advance)
        yield produced
        begin("consume")
        yield _consume(address, topic, load, produced.records, advance)
        begin("end to end")
        yield _end_to_end(address, topic, load, advance)


@contextmanager
def _own_topic(topics: BrokerTopics, load: BrokerLoad) -> Iterator[str]:
    topic = f"{_PREFIX}{secrets.token_hex(6)}"
    largest = _LEAST_MESSAGE_BYTES + 2 * load.record_bytes
    configs = {"max.message.bytes": largest, "retention.ms": -1, "cleanup.policy": "delete"}
    try:
        topics.create(topic, 1, configs)
    except KeyboardInterrupt:
        # The broker may have created it nevertheless.
        with suppress(DuralogError):
            topics.delete(topic)
        raise
    try:
        yield topic
    finally:
        try:
            topics.delete(topic)
        except BaseException:
            say(f"the topic {topic} may still exist: duralog topic delete HOST:PORT --topic {topic}")
            raise


def _producer(address: str, load: BrokerLoad, *, linger_ms: float) -> Any:
    return kafka_client().Producer(
        client_settings(
            address,
            **{
                "acks": load.acks,
                "compression.type": load.codec,
                "linger.ms": linger_ms,
                "message.timeout.ms": int(_ANSWER_SECONDS * 1000),
                "queue.buffering.max.messages": _QUEUE_RECORDS,
                "queue.buffering.max.kbytes": max(_QUEUE_BYTES, 4 * load.record_bytes) >> 10,
                "message.max.bytes": _LEAST_MESSAGE_BYTES + 2 * load.record_bytes,
            },
        )
    )


def _consumer(address: str, topic: str, load: BrokerLoad, offset: int) -> Any:
    client = kafka_client()
    consumer = client.Consumer(
        client_settings(
            address,
            **{
                "group.id": topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "queued.max.messages.kbytes": max(_QUEUE_BYTES, 4 * load.record_bytes) >> 10,
                "fetch.message.max.bytes": max(1 << 20, 2 * load.record_bytes),
                "fetch.wait.max.ms": 100,
            },
        )
    )
    consumer.assign([client.TopicPartition(topic, 0, offset)])
    return consumer


class _Acknowledgements:
    """Latencies of acknowledged records, and the first error."""

    def __init__(self) -> None:
        self.latencies = Latencies()
        self._error: Any = None

    def add(self, error: Any, message: Any) -> None:
        if error is not None:
            self._error = self._error or error
            return
        seconds = message.latency()
        if seconds is not None:
            self.latencies.add(seconds * 1000)

    def check(self) -> None:
        if self._error is not None:
            raise DuralogError(f"the broker refuses the records: {error_text(self._error)}")


def _produce(address: str, topic: str, load: BrokerLoad, advance: Advance) -> Row:
    acknowledgements = _Acknowledgements()
    producer = _producer(address, load, linger_ms=5)
    value = _value(load.record_bytes)
    _first_record(producer, topic, value)
    every = 1 if load.records is not None and load.records < _SHORTEST_FOR_ALL else _TIMED_EVERY
    sent = 0
    began, cpu = time.perf_counter(), time.process_time()
    end = None if load.seconds is None else began + load.seconds
    try:
        while (time.perf_counter() < end) if end is not None else (sent < (load.records or 0)):
            some = _AT_ONCE if load.records is None else min(_AT_ONCE, load.records - sent)
            for number in range(sent, sent + some):
                callback = {} if number % every else {"on_delivery": acknowledgements.add}
                while True:
                    try:
                        producer.produce(topic, value, partition=0, **callback)
                        break
                    except BufferError:
                        producer.poll(0.01)
            sent += some
            producer.poll(0)
            acknowledgements.check()
            advance(some)
        if producer.flush(_ANSWER_SECONDS):
            raise DuralogError(f"{address}: not all records were acknowledged in {_ANSWER_SECONDS:.0f} seconds")
        acknowledgements.check()
    except BaseException:
        producer.purge()
        raise
    seconds = time.perf_counter() - began
    return Row(
        of=BROKER,
        name=PRODUCE,
        seconds=seconds,
        data_bytes=sent * load.record_bytes,
        records=sent,
        # With acks=0 nothing is acknowledged.
        latencies=None if load.acks == "0" else acknowledgements.latencies,
        cpu_seconds=time.process_time() - cpu,
    )


def _first_record(producer: Any, topic: str, value: bytes) -> None:
    """Warm up: connect, and let the broker do the work of its first append."""
    acknowledgements = _Acknowledgements()
    producer.produce(topic, value, partition=0, on_delivery=acknowledgements.add)
    if producer.flush(_ANSWER_SECONDS):
        raise DuralogError(f"the broker did not acknowledge a record in {_ANSWER_SECONDS:.0f} seconds")
    acknowledgements.check()


def _consume(address: str, topic: str, load: BrokerLoad, records: int, advance: Advance) -> Row:
    """Consume every record that was produced, and the first one."""
    consumer = _consumer(address, topic, load, 0)
    got = 0
    quiet_since = began = time.perf_counter()
    cpu = time.process_time()
    try:
        while got < records:
            messages = _good(consumer.consume(_AT_ONCE, timeout=0.5))
            got += len(messages)
            advance(len(messages))
            now = time.perf_counter()
            if messages:
                quiet_since = now
            elif now - quiet_since > _ANSWER_SECONDS or load.acks == "0":
                # Records that were not acknowledged may be lost.
                break
        seconds = time.perf_counter() - began
    finally:
        consumer.close()
    if got < records and load.acks != "0":
        raise DuralogError(f"{address}: consumed only {got:,} of {records:,} records")
    return Row(
        of=BROKER,
        name="consume",
        seconds=seconds,
        data_bytes=got * load.record_bytes,
        records=got,
        cpu_seconds=time.process_time() - cpu,
    )


def _end_to_end(address: str, topic: str, load: BrokerLoad, advance: Advance) -> Row:
    """One record at a time: the next one is sent when the last one has arrived."""
    client = kafka_client()
    producer = _producer(address, load, linger_ms=0)
    consumer = _consumer(address, topic, load, client.OFFSET_END)
    value = _value(load.record_bytes)
    latencies = Latencies()
    most = min(_END_TO_END_RECORDS, load.records or _END_TO_END_RECORDS)
    longest = min(_END_TO_END_SECONDS, load.seconds or _END_TO_END_SECONDS)
    try:
        _wait_for_end(producer, consumer, topic, value)
        began = time.perf_counter()
        while latencies.count < most and time.perf_counter() - began < longest:
            sent = time.perf_counter()
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            while not _good(consumer.consume(1, timeout=_ANSWER_SECONDS)):
                if time.perf_counter() - sent > _ANSWER_SECONDS:
                    raise DuralogError(f"{address}: a record did not arrive in {_ANSWER_SECONDS:.0f} seconds")
            latencies.add((time.perf_counter() - sent) * 1000)
            advance(1)
            time.sleep(_PAUSE_SECONDS)
        seconds = time.perf_counter() - began
    finally:
        consumer.close()
        producer.purge()
    return Row(
        of=BROKER,
        name="end to end",
        seconds=seconds,
        # One record at a time has a latency, but no meaningful rate.
        data_bytes=0,
        latencies=latencies,
    )


def _wait_for_end(producer: Any, consumer: Any, topic: str, value: bytes) -> None:
    """Send until something arrives, then drain what is in flight: the consumer is at the end then."""
    sent = arrived = 0
    end = time.perf_counter() + _ANSWER_SECONDS
    while not arrived:
        if time.perf_counter() > end:
            raise DuralogError(f"nothing arrived in {_ANSWER_SECONDS:.0f} seconds")
        producer.produce(topic, value, partition=0)
        producer.flush(_ANSWER_SECONDS)
        sent += 1
        arrived += len(_good(consumer.consume(sent, timeout=0.2)))
    while _good(consumer.consume(_AT_ONCE, timeout=0.3)):
        pass


def _good(messages: list[Any]) -> list[Any]:
    for message in messages:
        error = message.error()
        if error is not None:
            raise DuralogError(f"the records cannot be fetched: {error_text(error)}")
    return messages


def _value(size: int) -> bytes:
    """Half of it random, so that it compresses about as well as events."""
    return (secrets.token_bytes(size // 4).hex().encode() + b"duralog " * (size // 16 + 1))[:size]
