"""CreatePartitions, versions 0 to 3: adds partitions to topics, or only validates that.

Topics for which a request would create more than 10,000 partitions in total are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from duralog.broker.quotas.client_quotas import ClientQuotas
from duralog.broker.quotas.mutations import MutationQuota
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import DUPLICATE, TIMED_OUT, TOO_MANY, Fault, fault_of, more_partitions_fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.errors import DuralogError
from duralog.storage.metadata.changes import MOST_PARTITIONS

_NO_TOPIC = Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, None)
_DONE = Fault(codes.NONE, None)
_QUOTA_ERROR_SINCE = 3
"""The first version whose clients know that a quota was exceeded."""


def handle(runtime: Runtime, topics: Topics, quotas: ClientQuotas, request: Request) -> Answer:
    message = request.message
    if message.timeout <= 0:
        return refuse(request, *TIMED_OUT)
    counts = Counter(topic.name for topic in message.topics)
    repeated = [_result(name, DUPLICATE) for name, count in counts.items() if count > 1]
    wanted = [topic for topic in message.topics if counts[topic.name] == 1]
    later = DelayedAnswer()
    quota = quotas.of_mutations(request, _QUOTA_ERROR_SINCE)
    growth = _Growth(runtime, quota, validate_only=message.validate_only)

    def work() -> list[Fields]:
        return [_result(topic.name, growth.of(topic)) for topic in wanted]

    def then(results: list[Fields], error: Exception | None) -> None:
        for name in growth.grown:
            topics.refresh(name)
        if error is not None:
            raise error
        later.answer({"results": repeated + results, "throttle_time": quota.throttle_ms})

    topics.change(work, then, later)
    return later


class _Growth:
    """The topics of one request, extended one after the other on a worker thread."""

    def __init__(self, runtime: Runtime, quota: MutationQuota, *, validate_only: bool) -> None:
        self._runtime = runtime
        self._quota = quota
        self._validate_only = validate_only
        self._room = MOST_PARTITIONS
        self.grown: list[str] = []

    def of(self, topic: Any) -> Fault:
        store = self._runtime.store
        if store.find_topic(topic.name) is None:
            return _NO_TOPIC
        present = store.partition_count(topic.name)
        node_id = self._runtime.node.node_id
        fault = more_partitions_fault(topic.name, present, topic.count, topic.assignments, node_id)
        if fault is None and topic.count - present > self._room:
            fault = TOO_MANY
        if fault is not None:
            return fault
        self._room -= topic.count - present
        if self._validate_only:
            return _DONE
        fault = self._quota.take(topic.count - present)
        if fault is not None:
            return fault
        self.grown.append(topic.name)
        try:
            store.add_partitions(topic.name, topic.count)
        except DuralogError as error:
            return fault_of(error, self._runtime.log_lines)
        return _DONE


def _result(name: str, fault: Fault) -> Fields:
    return {"name": name, "error_code": fault.code, "error_message": fault.message}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {"results": [_result(topic.name, fault) for topic in request.message.topics]}


API = Api(37, "CreatePartitions", 0, 3, handle, refuse)
