"""Metadata, versions 0 to 13: the broker, the topics and their partitions.

A missing topic that may be created is created on a worker thread; the answer says that it is unknown, as in Kafka, and
clients ask again. Version 0 takes an empty list for all topics, later ones take null. From version 12 on a client
may ask by topic id, and then only by id: names are ignored then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duralog.broker.audit.recorder import AuditRecorder
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.leadership import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NOT_ASKED, partition_fields
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.recorded_topics import recorded_creation
from duralog.broker.topics.topics import Topics, TopicView
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.format.filenames import topic_name_fault

_IDS_SINCE = 12


def handle(
    runtime: Runtime, topics: Topics, partitions: Partitions, audit: AuditRecorder | None, request: Request
) -> Answer:
    asked = request.message.topics
    wants_all = asked is None or (request.version == 0 and not asked)
    operations = ALL_TOPIC_OPERATIONS if _wants(request, "include_topic_authorized_operations") else NOT_ASKED
    answers: list[Fields] = []
    if wants_all:
        answers = [_known(runtime, partitions, topic, operations) for topic in topics.all()]
    else:
        for topic in asked:
            if _is_refused(request, topic):
                return refuse(request, codes.INVALID_REQUEST, None)
        ids = dict.fromkeys(topic_id for topic in asked if (topic_id := optional(topic, "topic_id")) is not None)
        if ids:
            found = [(topic_id, topics.by_id(topic_id)) for topic_id in ids]
            answers = [_unknown_id(topic_id, NOT_ASKED) for topic_id, topic in found if topic is None]
            answers += [_known(runtime, partitions, topic, operations) for _, topic in found if topic is not None]
        elif any(topic.name is None for topic in asked):
            return refuse(request, codes.UNKNOWN_SERVER_ERROR, None)
        else:
            on_created = None if audit is None else recorded_creation(audit, request)
            answers = _by_name(runtime, topics, partitions, request, operations, on_created)
    node = request.node or runtime.node
    cluster = ALL_CLUSTER_OPERATIONS if _wants(request, "include_cluster_authorized_operations") else NOT_ASKED
    return {
        "brokers": [{"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}],
        "cluster_id": node.cluster_id,
        "controller_id": node.node_id,
        "topics": answers,
        "cluster_authorized_operations": cluster,
        "error_code": codes.NONE,
    }


def _is_refused(request: Request, topic: Any) -> bool:
    """Ids exist since version 10, and Kafka answers them from version 12 on."""
    return request.version < _IDS_SINCE and (topic.name is None or optional(topic, "topic_id") is not None)


def _wants(request: Request, name: str) -> bool:
    return bool(optional(request.message, name, False))


def _by_name(
    runtime: Runtime,
    topics: Topics,
    partitions: Partitions,
    request: Request,
    operations: int,
    on_created: Callable[[str, TopicView | Exception], None] | None,
) -> list[Fields]:
    names = dict.fromkeys(topic.name for topic in request.message.topics)
    found = {name: topics.by_name(name) for name in names}
    missing = [name for name, topic in found.items() if topic is None]
    may_create = optional(request.message, "allow_auto_topic_creation", True)
    if missing and may_create and runtime.config.auto_create_topics_enable:
        topics.create_missing((name for name in missing if topic_name_fault(name) is None), on_created)
    known = [_known(runtime, partitions, topic, operations) for topic in found.values() if topic is not None]
    return known + [_missing(name, operations) for name in missing]


def _known(runtime: Runtime, partitions: Partitions, topic: TopicView, operations: int) -> Fields:
    return {
        "error_code": codes.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            partition_fields(partitions, runtime.node.node_id, topic, number) for number in topic.partitions
        ],
        "topic_authorized_operations": operations,
    }


def _missing(name: str, operations: int) -> Fields:
    is_valid = topic_name_fault(name) is None
    return {
        "error_code": codes.UNKNOWN_TOPIC_OR_PARTITION if is_valid else codes.INVALID_TOPIC_EXCEPTION,
        "name": name,
        "topic_id": None,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


def _unknown_id(topic_id: Any, operations: int) -> Fields:
    return {
        "error_code": codes.UNKNOWN_TOPIC_ID,
        "name": None,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    topics = [
        {
            "error_code": error_code,
            "name": topic.name or "",
            "topic_id": optional(topic, "topic_id"),
            "is_internal": False,
            "partitions": [],
            "topic_authorized_operations": NOT_ASKED,
        }
        for topic in request.message.topics or ()
    ]
    return {
        "brokers": [],
        "cluster_id": None,
        "controller_id": -1,
        "topics": topics,
        "cluster_authorized_operations": NOT_ASKED,
        "error_code": error_code,
    }


API = Api(3, "Metadata", 0, 13, handle, refuse)
