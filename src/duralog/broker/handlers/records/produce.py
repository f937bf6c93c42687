"""Produce (0), versions 3 to 13: records of producers into logs.

Versions 0 to 2 are advertised and refused, as Kafka does: older clients take their absence for a lack of compression.
A batch is checked, stamped where it was received and written once. Nearly every request goes the short way
(`duralog.broker.produce.ordinary`), the others the long one (`duralog.broker.produce.checked`).

With one replica, acks=all is acks=1. With acks=0 there is no answer, and an error ends the connection.
"""

from __future__ import annotations

from uuid import UUID

from duralog.broker.produce.appends import ProducerAppends
from duralog.broker.produce.checked import CheckedProduce
from duralog.broker.produce.ordinary import append_ordinary, ordinary_appends
from duralog.broker.produce.request import FIRST_WITH_TOPIC_IDS, parse
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(appends: ProducerAppends, request: Request) -> Answer:
    asked = parse(request.body, request.version)
    ordinary = ordinary_appends(appends.partitions, request.version, asked)
    if ordinary is not None:
        return append_ordinary(appends, request, asked, ordinary)
    return CheckedProduce(appends, request, asked).run()


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    asked = parse(request.body, request.version)
    return {
        "responses": [
            {
                **_topic_field(topic, request.version),
                "partition_responses": [
                    {
                        "index": number,
                        "error_code": error_code,
                        "base_offset": -1,
                        "log_append_time_ms": -1,
                        "log_start_offset": -1,
                        "record_errors": [],
                        "error_message": message,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in asked.topics.items()
        ],
    }


def _topic_field(topic: bytes, version: int) -> Fields:
    if version >= FIRST_WITH_TOPIC_IDS:
        return {"topic_id": UUID(bytes=topic)}
    return {"name": topic.decode("utf-8", "replace")}


API = Api(0, "Produce", 3, 13, handle, refuse, parse=False, advertised_min_version=0)
