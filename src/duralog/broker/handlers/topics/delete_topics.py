"""DeleteTopics, versions 1 to 6: by name, or from version 6 on by name or by id.

A topic that is named twice, or by name and by id, is not deleted.
"""

from __future__ import annotations

import uuid
from collections import Counter
from functools import partial

from duralog.broker.net.log_lines import LogLines
from duralog.broker.quotas.client_quotas import ClientQuotas
from duralog.broker.quotas.mutations import MutationQuota
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import DUPLICATE, TIMED_OUT, UNKNOWN_ID, UNKNOWN_TOPIC, Fault, fault_of
from duralog.broker.topics.topics import Topics, TopicView
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request

_BY_ID_SINCE = 6
_QUOTA_ERROR_SINCE = 5
"""The first version whose clients know that a quota was exceeded."""
_DISABLED_SINCE = 3
"""The first version with an error code for deletion that is switched off."""
_NOT_ENABLED = Fault(codes.TOPIC_DELETION_DISABLED, None)
_NAME_AND_ID = Fault(codes.INVALID_REQUEST, "You may not specify both topic name and topic id.")
_NEITHER = Fault(codes.INVALID_REQUEST, "Neither topic name nor id were specified.")
_DUPLICATE_ID = Fault(codes.INVALID_REQUEST, "Duplicate topic id.")
_NAME_OF_ID = Fault(codes.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")

_Asked = tuple[str | None, uuid.UUID | None]


def handle(runtime: Runtime, topics: Topics, quotas: ClientQuotas, request: Request) -> Answer:
    if not runtime.config.delete_topic_enable:
        if request.version < _DISABLED_SINCE:
            return refuse(request, codes.INVALID_REQUEST, None)
        return refuse(request, *_NOT_ENABLED)
    if request.message.timeout <= 0:
        return refuse(request, *TIMED_OUT)
    answers, asked = _resolved(topics, _asked(request))
    quota = quotas.of_mutations(request, _QUOTA_ERROR_SINCE)
    found = []
    for topic in asked:
        fault = quota.take(len(topic.partitions))
        if fault is None:
            found.append(topic)
        else:
            answers.append(_response(topic.name, topic.topic_id, fault))
    deletion = _Deletion(answers, len(found), quota, runtime.log_lines)
    for topic in found:
        topics.delete(topic.name, partial(deletion.finished, topic), deletion.later)
    return deletion.later if found else {"responses": answers, "throttle_time": quota.throttle_ms}


def _asked(request: Request) -> list[_Asked]:
    if request.version >= _BY_ID_SINCE:
        return [(topic.name, topic.topic_id) for topic in request.message.topics]
    return [(name, None) for name in request.message.topic_names]


def _resolved(topics: Topics, asked: list[_Asked]) -> tuple[list[Fields], list[TopicView]]:
    """The answers for what cannot be deleted, and the topics that can."""
    names = Counter(name for name, topic_id in asked if name is not None and topic_id is None)
    ids = Counter(topic_id for name, topic_id in asked if name is None and topic_id is not None)
    answers = [
        _response(name, topic_id, _NAME_AND_ID if name is not None else _NEITHER)
        for name, topic_id in asked
        if (name is None) == (topic_id is None)
    ]
    answers += [_response(name, None, DUPLICATE) for name, count in names.items() if count > 1]
    answers += [_response(None, topic_id, _DUPLICATE_ID) for topic_id, count in ids.items() if count > 1]
    found: list[TopicView] = []
    for topic_id in [topic_id for topic_id, count in ids.items() if count == 1]:
        topic = topics.by_id(topic_id)
        if topic is None:
            answers.append(_response(None, topic_id, UNKNOWN_ID))
        elif names[topic.name] == 1:
            del names[topic.name]
            answers.append(_response(topic.name, topic_id, _NAME_OF_ID))
        else:
            found.append(topic)
    for name in [name for name, count in names.items() if count == 1]:
        topic = topics.by_name(name)
        if topic is None:
            answers.append(_response(name, None, UNKNOWN_TOPIC))
        else:
            found.append(topic)
    return answers, found


class _Deletion:
    """Answers when the last topic of a request is deleted."""

    def __init__(self, answers: list[Fields], expected: int, quota: MutationQuota, log_lines: LogLines) -> None:
        self.later = DelayedAnswer()
        self._answers = answers
        self._expected = expected
        self._quota = quota
        self._log_lines = log_lines

    def finished(self, topic: TopicView, result: TopicView | Exception) -> None:
        fault = fault_of(result, self._log_lines) if isinstance(result, Exception) else Fault(codes.NONE, None)
        self._answers.append(_response(topic.name, topic.topic_id, fault))
        self._expected -= 1
        if self._expected == 0 and not self.later.is_answered:
            self.later.answer({"responses": self._answers, "throttle_time": self._quota.throttle_ms})


def _response(name: str | None, topic_id: uuid.UUID | None, fault: Fault) -> Fields:
    return {"name": name, "topic_id": topic_id, "error_code": fault.code, "error_message": fault.message}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {"responses": [_response(name, topic_id, fault) for name, topic_id in _asked(request)]}


API = Api(20, "DeleteTopics", 1, 6, handle, refuse)
