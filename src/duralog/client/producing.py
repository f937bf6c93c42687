"""Produces records to a running broker: idempotent, `acks=all`, partitioned by key as Kafka's Java clients do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from duralog.client.connection import ANSWER_SECONDS, admin_client, client_settings, error_text, errors_of, kafka_client
from duralog.client.unknown_names import unknown_partition
from duralog.config.plurals import plural
from duralog.errors import DuralogError, UnknownTopic
from duralog.format.record import Record

LARGEST_VALUE_BYTES = 64 << 20
_DELIVERY_SECONDS = 120
_LAST_PARTITION = 2**31 - 1
_OVERHEAD_BYTES = 1 << 20
"""For keys, headers and frames."""
_QUEUED_KILOBYTES = 2 * LARGEST_VALUE_BYTES >> 10

Placed = tuple[int | None, Record]
"""A record, and its partition if the source names one."""


@dataclass(slots=True)
class Written:
    """What was written to one partition."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def add(self, first: int, last: int, records: int) -> None:
        self.first_offset = first if self.records == 0 else min(self.first_offset, first)
        self.last_offset = max(self.last_offset, last)
        self.records += records


def to_broker(
    address: str,
    topic: str,
    groups: Iterable[list[Placed]],
    *,
    partition: int | None,
    codec: str | None,
    written: dict[int, Written],
) -> None:
    """Returns when the broker has acknowledged every record, or raises the first refusal.

    `written` gets what the broker has acknowledged, by partition, also if an error is raised.
    """
    client = kafka_client()
    delivery = _Delivery(written)
    admin = admin_client(address)
    with errors_of(address):
        known = admin.list_topics(timeout=ANSWER_SECONDS).topics
        if partition is not None and topic in known and partition not in known[topic].partitions:
            raise unknown_partition(address, topic, partition, sorted(known[topic].partitions))
        producer = client.Producer(
            client_settings(
                address,
                **{
                    "enable.idempotence": True,
                    "partitioner": "murmur2_random",
                    "compression.type": codec or "none",
                    "linger.ms": 5,
                    "delivery.timeout.ms": _DELIVERY_SECONDS * 1000,
                    # The broker decides how large a record may be.
                    "message.max.bytes": LARGEST_VALUE_BYTES + _OVERHEAD_BYTES,
                    "queue.buffering.max.kbytes": _QUEUED_KILOBYTES,
                },
            )
        )
        try:
            for group in groups:
                for placed in group:
                    _send(producer, topic, placed, partition, delivery)
                producer.poll(0)
                if delivery.refusal is not None:
                    break
        except (DuralogError, client.KafkaException):
            # The records before the one that cannot be sent are still written.
            producer.flush(_DELIVERY_SECONDS)
            raise
        left = producer.flush(_DELIVERY_SECONDS)
        delivery.check(address)
        if left:
            raise DuralogError(f"{address}: {plural(left, 'record')} not acknowledged in {_DELIVERY_SECONDS} seconds")


def _send(producer: Any, topic: str, placed: Placed, partition: int | None, delivery: _Delivery) -> None:
    named, record = placed
    number = partition if partition is not None else named
    if number is not None and number > _LAST_PARTITION:
        raise UnknownTopic(f"there is no partition {number} of {topic}")
    options: dict[str, Any] = {} if number is None else {"partition": number}
    if record.timestamp_ms >= 0:
        options["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(
                topic, record.value, record.key, headers=list(record.headers), on_delivery=delivery.done, **options
            )
            return
        except BufferError:
            producer.poll(0.1)


class _Delivery:
    def __init__(self, written: dict[int, Written]) -> None:
        self.written = written
        self.refusal: str | None = None
        """The reason of the first refusal."""

    def done(self, error: Any, message: Any) -> None:
        if error is not None:
            number = message.partition()  # None if the topic itself is refused.
            where = message.topic() if number is None or number < 0 else f"{message.topic()}-{number}"
            self.refusal = self.refusal or f"{where}: {error_text(error)}"
        else:
            self.written.setdefault(message.partition(), Written()).add(message.offset(), message.offset(), 1)

    def check(self, address: str) -> None:
        if self.refusal is not None:
            done = sum(written.records for written in self.written.values())
            raise DuralogError(f"{address}: {self.refusal}; {plural(done, 'record')} written before")
