"""Records sent to a broker: idempotent, acknowledged by all replicas, and placed by Java's rule for keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from duralog.cli.common.tables import plural
from duralog.cli.common.unknown_names import unknown_partition
from duralog.cli.records.produced_store import Place
from duralog.cli.records.record_input import LARGEST_LINE_BYTES, Placed
from duralog.client.target import ANSWER_SECONDS, admin_client, client_settings, in_words, kafka_client, told_by_broker
from duralog.errors import DuralogError, UnknownTopic

_DELIVERY_SECONDS = 120
_LAST_PARTITION = 2**31 - 1
_ROOM_BYTES = 1 << 20
"""For keys, headers and frames."""
_QUEUED_KILOBYTES = 2 * LARGEST_LINE_BYTES >> 10


def to_broker(
    address: str,
    topic: str,
    groups: Iterable[list[Placed]],
    *,
    partition: int | None,
    codec: str | None,
    written: dict[int, Place],
) -> None:
    """Returns when the broker has acknowledged every record, or raises with the first that it refused.

    `written` tells what it has acknowledged, also where an error ends it.
    """
    client = kafka_client()
    delivery = _Delivery(written)
    admin = admin_client(address)
    with told_by_broker(address):
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
                    # How large a record may be is the broker's to say.
                    "message.max.bytes": LARGEST_LINE_BYTES + _ROOM_BYTES,
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
            # What came before the record that cannot be sent is written all the same.
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
                topic, record.value, record.key, headers=list(record.headers), on_delivery=delivery.told, **options
            )
            return
        except BufferError:
            producer.poll(0.1)


class _Delivery:
    def __init__(self, written: dict[int, Place]) -> None:
        self.written = written
        self.refusal: str | None = None
        """Why the first record that was refused was."""

    def told(self, error: Any, message: Any) -> None:
        if error is not None:
            number = message.partition()  # None where the topic itself is refused.
            where = message.topic() if number is None or number < 0 else f"{message.topic()}-{number}"
            self.refusal = self.refusal or f"{where}: {in_words(error)}"
        else:
            self.written.setdefault(message.partition(), Place()).add(message.offset(), message.offset(), 1)

    def check(self, address: str) -> None:
        if self.refusal is not None:
            done = sum(place.records for place in self.written.values())
            raise DuralogError(f"{address}: {self.refusal}; {plural(done, 'record')} written before")
