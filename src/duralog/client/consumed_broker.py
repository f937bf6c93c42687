"""Records of a topic through a broker's port: of partitions that are named, or as a member of a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from duralog.cli.common.unknown_names import unknown_partition, unknown_topic
from duralog.client.consume_request import ConsumeRequest, check_offset
from duralog.client.target import ANSWER_SECONDS, admin_client, client_settings, in_words, kafka_client, told_by_broker
from duralog.errors import DuralogError
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record, TimestampType

_WAIT_SECONDS = 0.25
_MESSAGES = 1_000
_TYPES = {1: TimestampType.CREATE_TIME, 2: TimestampType.LOG_APPEND_TIME}


def from_broker(
    target: str,
    request: ConsumeRequest,
    *,
    before_waiting: Callable[[], None],
    on_total: Callable[[int], None] = lambda _: None,
    say_note: Callable[[str], None] = lambda _: None,
) -> Generator[tuple[str, int, Record], None, None]:
    """As they come. Without `follow`, up to where the partitions ended when asked; a group's, until nothing is left.

    `on_total` is called with the number of offsets there are to read, where that is known, and `say_note` with what a
    reader should know.
    """
    client = kafka_client()
    admin = admin_client(target)
    consumer = client.Consumer(
        client_settings(
            target,
            **{
                "group.id": request.group or "duralog-consume",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error" if request.group is None else "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if request.committed else "read_uncommitted",
                "allow.auto.create.topics": False,
            },
        )
    )
    with told_by_broker(target):
        try:
            partitions = _partitions(admin, target, request)
            reading = _Reading(client, consumer, request)
            if request.group is None:
                on_total(reading.assign(partitions, say_note))
            else:
                consumer.subscribe([request.topic], on_assign=reading.on_assign)
            yield from reading.records(before_waiting)
        finally:
            consumer.close()


def _partitions(admin: Any, address: str, request: ConsumeRequest) -> list[int]:
    topics = admin.list_topics(timeout=ANSWER_SECONDS).topics
    if request.topic not in topics or not topics[request.topic].partitions:
        raise unknown_topic(address, request.topic, topics)
    numbers = sorted(topics[request.topic].partitions)
    if request.partition is not None and request.partition not in numbers:
        raise unknown_partition(address, request.topic, request.partition, numbers)
    wanted = numbers if request.partition is None else [request.partition]
    for number in wanted:
        if topics[request.topic].partitions[number].leader < 0:
            raise DuralogError(
                f"{request.topic}-{number} has no leader, so nobody can read it: the log of {address} tells why."
                " --partition reads another"
            )
    return wanted


class _Reading:
    def __init__(self, client: Any, consumer: Any, request: ConsumeRequest) -> None:
        self._client = client
        self._consumer = consumer
        self._request = request
        self._left: set[int] = set()
        """Partitions whose end was not reached yet."""
        self._ends: dict[int, int] = {}
        """Up to where they are read, by partition; one that is not here, to its very end."""
        self._has_begun = False

    def assign(self, partitions: list[int], say_note: Callable[[str], None]) -> int:
        """Returns how many offsets there are to read."""
        edges = {number: self._edges(number) for number in partitions}
        if self._request.offset is not None:
            ends = {number: end for number, (_, end) in edges.items()}
            check_offset(self._request.topic, self._request.offset, ends, say_note)
        places = [
            self._client.TopicPartition(self._request.topic, number, start) for number, (start, _) in edges.items()
        ]
        self._consumer.assign(places)
        self._left = set(partitions)
        if not self._request.follow:
            self._ends = {number: end for number, (_, end) in edges.items()}
        self._has_begun = True
        return sum(end - start for start, end in edges.values())

    def on_assign(self, _consumer: Any, places: list[Any]) -> None:
        self._left = {place.partition for place in places}
        self._has_begun = True

    def _edges(self, number: int) -> tuple[int, int]:
        """From where to read a partition, and up to where."""
        place = self._client.TopicPartition(self._request.topic, number)
        low, high = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        return self._start(place, low, high), int(high)

    def _start(self, place: Any, low: int, high: int) -> int:
        request = self._request
        if request.timestamp_ms is not None:
            place.offset = max(request.timestamp_ms, 0)  # Below, it would be Kafka's word for an end of the log.
            (found,) = self._consumer.offsets_for_times([place], timeout=ANSWER_SECONDS)
            return int(high if found.offset < 0 else found.offset)
        if request.tail is not None:
            return int(max(high - request.tail, low))
        if request.offset is None:
            return int(low)
        return int(min(max(request.offset, low), high))

    def records(self, before_waiting: Callable[[], None]) -> Generator[tuple[str, int, Record], None, None]:
        while self._request.follow or self._left or not self._has_begun:
            messages = self._consumer.consume(_MESSAGES, timeout=_WAIT_SECONDS)
            shown: dict[int, Any] = {}
            try:
                for message in messages:
                    error = message.error()
                    if error is None and self._is_beyond(message):
                        self._left.discard(message.partition())
                    elif error is None:
                        shown[message.partition()] = message
                        yield message.topic(), message.partition(), _record(message)
                    elif error.code() == self._client.KafkaError._PARTITION_EOF:
                        self._left.discard(message.partition())
                    else:
                        raise DuralogError(in_words(error))
            finally:
                # Also where the caller has seen enough. What nobody got to see is not committed.
                if self._request.group is not None and shown:
                    before_waiting()
                    for message in shown.values():
                        self._consumer.commit(message, asynchronous=False)
            if not messages:
                before_waiting()

    def _is_beyond(self, message: Any) -> bool:
        """Whether it came after the command had begun: there may be no end of such, and it is not waited for."""
        end = self._ends.get(message.partition())
        return end is not None and message.offset() >= end


def _record(message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        key=message.key(),
        value=message.value(),
        timestamp_ms=timestamp_ms if kind in _TYPES else NO_TIMESTAMP,
        headers=[(name, value) for name, value in message.headers() or ()],
        offset=message.offset(),
        timestamp_type=_TYPES.get(kind, TimestampType.NONE),
    )
