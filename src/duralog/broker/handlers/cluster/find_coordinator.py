"""FindCoordinator, versions 0 to 6: the coordinator of a group or a transactional id, which is this node.

The internal topic of the coordinator is created at the first request, and the answer waits for it. Kafka answers with
an error that makes the client retry.

Version 1: transactional ids. Version 4: several keys at once. Version 6: share groups, which are not offered.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from duralog.broker.audit.recorder import AuditRecorder
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.topics.recorded_topics import recorded_creation
from duralog.broker.topics.topics import Topics, TopicView
from duralog.broker.wire.error_codes import COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, NONE, UNKNOWN_SERVER_ERROR
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request

_TOPICS: Final = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
"""By the type of the key."""
_SHARE: Final = 2
_SEVERAL: Final = 4
_NO_NODE: Final = -1
_NO_ERROR_TEXT: Final = "NONE"
"""What Kafka sends as error message if there is no error."""
_ERROR_TEXTS: Final = {
    COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or the message"
    " was sent to an incompatible broker. See the broker logs for more details.",
    UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
}


def handle(runtime: Runtime, topics: Topics, audit: AuditRecorder | None, request: Request) -> Answer:
    key_type = optional(request.message, "key_type", 0)
    if key_type == _SHARE:
        return _fields(runtime, request, INVALID_REQUEST)
    topic = _TOPICS.get(key_type)
    if topic is None:
        return refuse(request, INVALID_REQUEST, None)
    if topics.by_name(topic) is not None:
        return _fields(runtime, request, NONE)
    if request.version >= _SEVERAL and not request.message.coordinator_keys:
        return _fields(runtime, request, NONE)
    later = DelayedAnswer()

    def is_made(made: TopicView | Exception) -> None:
        if isinstance(made, Exception):
            runtime.log_lines.warn(f"no {topic}", f"{topic} cannot be created: {made}")
        later.answer(_fields(runtime, request, COORDINATOR_NOT_AVAILABLE if isinstance(made, Exception) else NONE))

    on_created = None if audit is None else partial(recorded_creation(audit, request), topic)
    topics.ensure_internal(topic, is_made, later, on_created)
    return later


def _fields(runtime: Runtime, request: Request, error_code: int) -> Fields:
    node = request.node or runtime.node
    place: Fields = {"node_id": _NO_NODE, "host": "", "port": -1}
    if error_code == NONE:
        place = {"node_id": node.node_id, "host": node.host, "port": node.port}
    if request.version >= _SEVERAL:
        keys = request.message.coordinator_keys
        answer = {"error_code": error_code, "error_message": "", **place}
        return {"coordinators": [{"key": key, **answer} for key in keys]}
    return {"error_code": error_code, "error_message": _ERROR_TEXTS.get(error_code, _NO_ERROR_TEXT), **place}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    text = message or _ERROR_TEXTS.get(error_code)
    place: Fields = {"error_code": error_code, "node_id": _NO_NODE, "host": "", "port": -1, "error_message": text}
    if request.version < _SEVERAL:
        return place
    return {"coordinators": [{"key": key, **place} for key in request.message.coordinator_keys]}


API = Api(10, "FindCoordinator", 0, 6, handle, refuse)
