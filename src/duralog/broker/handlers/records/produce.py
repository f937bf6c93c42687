"""Produce (0), versions 3 to 13: records of producers into logs.

Versions 0 to 2 are advertised and refused, as Kafka does: older clients take their absence for a lack of compression.
A batch is checked, stamped where it was received and written once. Nearly every request takes the fast path
(`duralog.broker.produce.ordinary`), the others the slow one (`duralog.broker.produce.checked`).

With one replica, acks=all is acks=1. With acks=0 there is no answer, and an error ends the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.produce.appends import ProducerAppends
from duralog.broker.produce.checked import CheckedProduce
from duralog.broker.produce.ordinary import append_ordinary, ordinary_appends
from duralog.broker.produce.request import FIRST_WITH_TOPIC_IDS, ProduceRequest, parse
from duralog.broker.produce.response import throttled
from duralog.broker.produce.rules import has_transactional_records
from duralog.broker.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.storage.metadata.acls import Operation, ResourceType

_WRITE, _TOPIC = int(Operation.WRITE), int(ResourceType.TOPIC)
"""Plain numbers: looking up an enumeration would cost more than the cached decision."""


def handle(appends: ProducerAppends, authorizer: Authorizer | None, request: Request) -> Answer:
    asked = parse(request.body, request.version)
    if authorizer is not None:
        known = authorizer.writable.get((id(request.principal), request.client_host, request.version))
        if known is None or asked.transactional_id is not None or not known.issuperset(asked.topics):
            refused = refused_writes(authorizer, appends, request, asked)
            if refused:
                return CheckedProduce(appends, request, asked, refused).run()
    ordinary = ordinary_appends(appends.partitions, request.version, asked)
    if ordinary is not None:
        return append_ordinary(appends, request, asked, ordinary)
    return CheckedProduce(appends, request, asked).run()


def refused_writes(
    authorizer: Authorizer, appends: ProducerAppends, request: Request, asked: ProduceRequest
) -> Mapping[bytes, int]:
    """The topics, as the request names them, that its sender may not write to, and why.

    WRITE of the transactional id, if there are transactional records, and of each topic. An unknown id is not refused
    here: it has no name.
    """
    transactional_id, is_id = asked.transactional_id, request.version >= FIRST_WITH_TOPIC_IDS
    if (
        transactional_id is not None
        and not authorizer.shows(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        and has_transactional_records(asked)
    ):
        authorizer.allows(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return dict.fromkeys(asked.topics, TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused: dict[bytes, int] = {}
    allowed: list[bytes] = []
    for topic in asked.topics:
        name = appends.topic_name(topic, is_id=is_id)
        if name is not None and not authorizer.allows(request, _WRITE, _TOPIC, name):
            refused[topic] = TOPIC_AUTHORIZATION_FAILED
        elif name is not None:
            allowed.append(topic)
    authorizer.remember_writable(request, allowed)
    return refused


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


API = Api(0, "Produce", 3, 13, handle, refuse, parse=False, throttled=throttled, advertised_min_version=0)
