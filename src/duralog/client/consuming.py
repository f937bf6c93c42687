"""Consumes records from a running broker: of chosen partitions, or as a member of a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from duralog.client.connection import (
    ANSWER_SECONDS,
    Place,
    admin_client,
    client_settings,
    error_text,
    errors_of,
    kafka_client,
)
from duralog.client.unknown_names import unknown_partition, unknown_topic
from duralog.errors import DuralogError, OffsetOutOfRange, UnknownTopic
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record, TimestampType

_WAIT_SECONDS = 0.25
_REFRESH_SECONDS = 5.0
"""How often to look for new topics and partitions while following."""
_REFRESH_TIMEOUT_SECONDS = 1.0
"""Short: Ctrl-C waits for it."""
_MESSAGES = 1_000
_TYPES = {1: TimestampType.CREATE_TIME, 2: TimestampType.LOG_APPEND_TIME}
_MOST_NAMED = 10
PATTERN = frozenset("*?[")
"""Characters that make a name a pattern. No topic name contains them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """What to read. At most one of `offset`, `timestamp_ms`, `tail` and `group` is given; without, from the start."""

    topics: Sequence[str]
    """Names, or patterns such as `pay*`."""
    partition: int | None = None
    """All if None."""
    offset: int | None = None
    timestamp_ms: int | None = None
    tail: int | None = None
    """Start this many offsets before the end."""
    group: str | None = None
    committed: bool = False
    follow: bool = False


def chosen_topics(where: str, wanted: Iterable[str], known: Collection[str]) -> list[str]:
    """The topics that are named or match a pattern, each once. Only a pattern with `__` in front matches internal ones.

    Raises `UnknownTopic` if there is no topic of a name, or none that matches a pattern.
    """
    chosen: dict[str, None] = {}
    for name in wanted:
        if name in known:
            chosen[name] = None
        elif not set(name) & PATTERN:
            raise unknown_topic(where, name, known)
        else:
            found = [each for each in sorted(known) if fnmatchcase(each, name) and _may_match(name, each)]
            if not found:
                raise UnknownTopic(f"no topic in {where} matches {name}: duralog topic list {where} lists all")
            chosen.update(dict.fromkeys(found))
    return list(chosen)


def chosen_partitions(where: str, request: ConsumeRequest, known: Mapping[str, Collection[int]]) -> list[Place]:
    """The partitions to read, out of the known ones.

    Raises `UnknownTopic` as `chosen_topics` does, and if a topic that is named does not have the wanted partition, or
    none that matches a pattern.
    """
    topics = chosen_topics(where, request.topics, known)
    if request.partition is None:
        return [(topic, number) for topic in topics for number in sorted(known[topic])]
    for topic in topics:
        if topic in request.topics and request.partition not in known[topic]:
            raise unknown_partition(where, topic, request.partition, sorted(known[topic]))
    places = [(topic, request.partition) for topic in topics if request.partition in known[topic]]
    if not places:
        numbers = sorted({number for topic in topics for number in known[topic]})
        raise unknown_partition(where, None, request.partition, numbers)
    return places


def _may_match(pattern: str, topic: str) -> bool:
    return pattern.startswith("__") or not topic.startswith("__")


def check_offset(offset: int, ends: Mapping[Place, int], say_note: Callable[[str], None]) -> None:
    """Raise `OffsetOutOfRange` if the offset is past the end of all partitions; pass a note if it is past some.

    `ends` are the end offsets by topic and partition.
    """
    beyond = {f"{topic}-{number}": end for (topic, number), end in sorted(ends.items()) if offset > end}
    if not beyond:
        return
    if len(beyond) == 1:
        listed = "".join(f"{place}, which is {end}" for place, end in beyond.items())
    else:
        listed = ", ".join(f"{place} ({end})" for place, end in list(beyond.items())[:_MOST_NAMED])
        listed += f" and {len(beyond) - _MOST_NAMED:,} more" if len(beyond) > _MOST_NAMED else ""
    sentence = f"offset {offset} is past the end of {listed}"
    if len(beyond) == len(ends):
        raise OffsetOutOfRange(f"{sentence}: give a smaller one, or --tail N for the last N offsets")
    say_note(sentence)


def from_broker(
    target: str,
    request: ConsumeRequest,
    *,
    before_waiting: Callable[[], None],
    on_total: Callable[[int], None] = lambda _: None,
    say_note: Callable[[str], None] = lambda _: None,
) -> Generator[tuple[str, int, Record], None, None]:
    """Yield records as they arrive: without `follow`, up to the current end offsets; for a group, until none is left.

    `on_total` is called with the number of offsets to read, if it is known; `say_note` with warnings for the user.
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
    with errors_of(target):
        try:
            partitions = _partitions(admin, target, request, timeout=ANSWER_SECONDS)
            for (topic, number), has_leader in partitions.items():
                if not has_leader:
                    raise DuralogError(
                        f"{topic}-{number} has no leader, so it cannot be read: see the log of {target} for the reason."
                        " --partition reads another"
                    )
            reading = _Reading(client, consumer, request)
            if request.group is None:
                on_total(reading.assign(list(partitions), say_note))
            else:
                reading.subscribe({topic for topic, _ in partitions})
            yield from reading.records(
                before_waiting, find=lambda: _partitions(admin, target, request, timeout=_REFRESH_TIMEOUT_SECONDS)
            )
        finally:
            consumer.close()


def _partitions(admin: Any, address: str, request: ConsumeRequest, *, timeout: float) -> dict[Place, bool]:
    """The partitions to read, each with whether it has a leader."""
    topics = {name: topic for name, topic in admin.list_topics(timeout=timeout).topics.items() if topic.partitions}
    places = chosen_partitions(address, request, {name: topic.partitions for name, topic in topics.items()})
    return {(topic, number): topics[topic].partitions[number].leader >= 0 for topic, number in places}


class _Reading:
    def __init__(self, client: Any, consumer: Any, request: ConsumeRequest) -> None:
        self._client = client
        self._consumer = consumer
        self._request = request
        self._left: set[Place] = set()
        """Partitions that are not yet read to their end."""
        self._ends: dict[Place, int] = {}
        """The offset to stop at, by partition. A partition without one is read to its current end."""
        self._has_begun = False
        self._assigned: set[Place] = set()
        """The partitions that are read without a group."""
        self._subscribed: set[str] = set()
        """The topics that are read with a group."""

    def assign(self, partitions: list[Place], say_note: Callable[[str], None]) -> int:
        """Returns the number of offsets to read."""
        edges = {place: self._edges(place) for place in partitions}
        if self._request.offset is not None:
            check_offset(self._request.offset, {place: end for place, (_, end) in edges.items()}, say_note)
        places = [self._client.TopicPartition(*place, start) for place, (start, _) in edges.items()]
        self._consumer.assign(places)
        self._assigned = set(partitions)
        self._left = set(partitions)
        if not self._request.follow:
            self._ends = {place: end for place, (_, end) in edges.items()}
        self._has_begun = True
        return sum(end - start for start, end in edges.values())

    def subscribe(self, topics: set[str]) -> None:
        self._consumer.subscribe(sorted(topics), on_assign=self._on_assign)
        self._subscribed = topics

    def _on_assign(self, _consumer: Any, places: list[Any]) -> None:
        self._left = {(place.topic, place.partition) for place in places}
        self._has_begun = True

    def _edges(self, partition: Place) -> tuple[int, int]:
        """The first offset to read of a partition, and the end offset."""
        place = self._client.TopicPartition(*partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        return self._start(place, low, high), int(high)

    def _start(self, place: Any, low: int, high: int) -> int:
        request = self._request
        if request.timestamp_ms is not None:
            place.offset = max(request.timestamp_ms, 0)  # Negative values mean the start or end of the log.
            (found,) = self._consumer.offsets_for_times([place], timeout=ANSWER_SECONDS)
            return int(high if found.offset < 0 else found.offset)
        if request.tail is not None:
            return int(max(high - request.tail, low))
        if request.offset is None:
            return int(low)
        return int(min(max(request.offset, low), high))

    def _add_new(self, find: Callable[[], Mapping[Place, bool]]) -> None:
        """Also read partitions that were created since the start, from their beginning.

        If the broker does not answer now, or all topics are missing, the next refresh tries again.
        """
        try:
            found = {place for place, has_leader in find().items() if has_leader}
            topics = {topic for topic, _ in found}
            if self._request.group is not None:
                if topics - self._subscribed:
                    self.subscribe(self._subscribed | topics)
            elif added := found - self._assigned:
                places = [self._client.TopicPartition(*place) for place in sorted(added)]
                for place in places:
                    place.offset, _ = self._consumer.get_watermark_offsets(place, timeout=_REFRESH_TIMEOUT_SECONDS)
                self._consumer.incremental_assign(places)
                self._assigned |= added
        except (UnknownTopic, self._client.KafkaException):
            return

    def records(
        self, before_waiting: Callable[[], None], *, find: Callable[[], Mapping[Place, bool]]
    ) -> Generator[tuple[str, int, Record], None, None]:
        """`find` returns the partitions to read that exist now, each with whether it has a leader."""
        refreshed = time.monotonic()
        while self._request.follow or self._left or not self._has_begun:
            messages = self._consumer.consume(_MESSAGES, timeout=_WAIT_SECONDS)
            shown: dict[Place, Any] = {}
            try:
                for message in messages:
                    error = message.error()
                    place = message.topic(), message.partition()
                    if error is None and self._is_beyond(message):
                        self._left.discard(place)
                    elif error is None:
                        shown[place] = message
                        yield *place, _record(message)
                    elif error.code() == self._client.KafkaError._PARTITION_EOF:
                        self._left.discard(place)
                    else:
                        raise DuralogError(error_text(error))
            finally:
                # Also if the caller stops early. Only records that it received are committed.
                if self._request.group is not None and shown:
                    before_waiting()
                    for message in shown.values():
                        self._consumer.commit(message, asynchronous=False)
            if not messages:
                before_waiting()
            if self._request.follow and time.monotonic() - refreshed >= _REFRESH_SECONDS:
                before_waiting()
                self._add_new(find)
                refreshed = time.monotonic()

    def _is_beyond(self, message: Any) -> bool:
        """Whether the record was written after the start: a busy topic would never end."""
        end = self._ends.get((message.topic(), message.partition()))
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
