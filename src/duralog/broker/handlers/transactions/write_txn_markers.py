"""WriteTxnMarkers, versions 1 and 2: writes markers for transactions of any producer, to end hanging ones.

Among brokers, coordinators send it to the leaders of partitions; here the coordinator writes its own markers
(`markers`), and the request comes from `kafka-transactions.sh abort`. The partition checks the epochs, so that the
transaction of a later producer cannot be ended. A turn of the loop writes a bounded number of markers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.net.log_lines import error_text, logger, one_line
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.topics.partitions import Partitions
from duralog.broker.transactions.markers import MARKERS_PER_TURN
from duralog.broker.wire.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, code_of
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.errors import DuralogError

_Results = dict[tuple[str, int], int]


def handle(runtime: Runtime, partitions: Partitions, groups: GroupCoordinator, request: Request) -> Answer:
    left = [
        (marker, topic.name, number)
        for marker in reversed(request.message.markers)
        for topic in reversed(marker.topics)
        for number in reversed(topic.partition_indexes)
    ]
    results: dict[int, _Results] = {}
    later = DelayedAnswer()

    def go_on() -> None:
        for _ in range(min(len(left), MARKERS_PER_TURN)):
            marker, topic, number = left.pop()
            results.setdefault(marker.producer_id, {})[topic, number] = _write(
                partitions, groups, marker, topic, number
            )
        if left:
            runtime.timers.after(0, go_on)
        else:
            later.answer(_fields(results))

    go_on()
    return later


def _write(partitions: Partitions, groups: GroupCoordinator, marker: Any, topic: str, number: int) -> int:
    if partitions.get(topic, number) is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    try:
        partitions.end_transaction(
            topic,
            number,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=optional(marker, "transaction_version", 0),
        )
        if topic == CONSUMER_OFFSETS:
            groups.complete_transaction(marker.producer_id, number, marker.transaction_result)
    except Exception as error:  # The others are still written.
        if not isinstance(error, DuralogError):
            reason = f"a marker of producer {marker.producer_id} for {topic}-{number}: {error_text(error)}"
            logger.error("%s", one_line(reason))
        return code_of(error)
    return NONE


def _fields(results: Mapping[int, _Results]) -> Fields:
    markers = []
    for producer_id, of_producer in results.items():
        topics: dict[str, list[Fields]] = {}
        for (name, number), error in of_producer.items():
            topics.setdefault(name, []).append({"partition_index": number, "error_code": error})
        named = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        markers.append({"producer_id": producer_id, "topics": named})
    return {"markers": markers}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    results: dict[int, _Results] = {}
    for marker in request.message.markers:
        of_producer = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            of_producer.update({(topic.name, number): error_code for number in topic.partition_indexes})
    return _fields(results)


API = Api(27, "WriteTxnMarkers", 1, 2, handle, refuse)
