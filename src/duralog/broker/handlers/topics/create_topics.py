"""CreateTopics, versions 2 to 7: creates topics, or only validates that.

A topic that is refused does not keep the others from being created. A request for more than 10,000 partitions is
refused as a whole. Unlike Kafka, two names in one request that differ only in '.' and '_' are not both created.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from duralog.broker.configs.faults import topic_configs_fault
from duralog.broker.configs.resources import effective_topic_configs
from duralog.broker.quotas.client_quotas import ClientQuotas
from duralog.broker.quotas.mutations import MutationQuota
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import (
    DUPLICATE,
    NOT_GIVEN,
    REPLICAS,
    TIMED_OUT,
    TOO_MANY,
    Fault,
    fault_of,
    new_name_fault,
    placement_fault,
)
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.errors import DuralogError
from duralog.format.filenames import collision_key
from duralog.storage.metadata.changes import MOST_PARTITIONS

_QUOTA_ERROR_SINCE = 6
"""The first version whose clients know that a quota was exceeded."""


def handle(runtime: Runtime, topics: Topics, quotas: ClientQuotas, request: Request) -> Answer:
    message = request.message
    if message.timeout <= 0:
        return refuse(request, *TIMED_OUT)
    counts = Counter(topic.name for topic in message.topics)
    wanted = [topic for topic in message.topics if counts[topic.name] == 1]
    repeated = [_refused(name, DUPLICATE) for name, count in counts.items() if count > 1]
    if sum(max(_partition_count(runtime, topic), 0) for topic in wanted) > MOST_PARTITIONS:
        return refuse(request, *TOO_MANY)
    quota = quotas.of_mutations(request, _QUOTA_ERROR_SINCE)
    creation = _Creation(runtime, quota, validate_only=message.validate_only)
    later = DelayedAnswer()

    def then(results: list[Fields], error: Exception | None) -> None:
        for name in creation.created:
            topics.refresh(name)
        if error is not None:
            raise error
        later.answer({"topics": results + repeated, "throttle_time": quota.throttle_ms})

    topics.change(lambda: [creation.of(topic) for topic in wanted], then, later)
    return later


class _Creation:
    """The topics of one request, created one after the other on a worker thread."""

    def __init__(self, runtime: Runtime, quota: MutationQuota, *, validate_only: bool) -> None:
        self._runtime = runtime
        self._quota = quota
        self._validate_only = validate_only
        self._by_collision_key: dict[str, str] | None = None
        self._effective: dict[tuple[tuple[str, str], ...], list[Fields]] = {}
        """The configs of a topic by those that it sets itself: many topics set the same ones, or none."""
        self.created: list[str] = []

    def of(self, topic: Any) -> Fields:
        store = self._runtime.store
        configs: dict[str, str] = {config.name: config.value for config in topic.configs}
        fault = self._fault(topic, configs)
        topic_id: object = uuid.uuid4()
        partitions = _partition_count(self._runtime, topic)
        if fault is None and not self._validate_only:
            fault = self._quota.take(partitions)
        if fault is None and not self._validate_only:
            try:
                topic_id = store.create_topic(topic.name, partitions, configs)
            except DuralogError as error:
                fault = fault_of(error, self._runtime.log_lines)
            finally:
                if store.find_topic(topic.name) is not None:
                    self.created.append(topic.name)
                    self._names()[collision_key(topic.name)] = topic.name
        if fault is not None:
            return _refused(topic.name, fault)
        return {
            "name": topic.name,
            "topic_id": topic_id,
            "error_code": codes.NONE,
            "error_message": None,
            "num_partitions": partitions,
            "replication_factor": REPLICAS,
            "configs": self._effective_configs(configs),
        }

    def _effective_configs(self, overrides: dict[str, str]) -> list[Fields]:
        key = tuple(overrides.items())
        if key not in self._effective:
            self._effective[key] = effective_topic_configs(self._runtime.store, overrides)
        return self._effective[key]

    def _fault(self, topic: Any, configs: dict[str, str]) -> Fault | None:
        store = self._runtime.store
        exists = {topic.name: topic.name} if store.find_topic(topic.name) is not None else {}
        fault = new_name_fault(topic.name, exists, self._names())
        if fault is not None:
            return fault
        nulls = [name for name, value in configs.items() if value is None]
        if nulls:
            return Fault(codes.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        config_fault = topic_configs_fault(configs, store.config.topic_defaults())
        if config_fault is not None:
            return Fault(codes.INVALID_CONFIG, config_fault)
        return placement_fault(
            topic.num_partitions,
            topic.replication_factor,
            topic.assignments,
            self._runtime.node.node_id,
            self._runtime.config.default_replication_factor,
        )

    def _names(self) -> dict[str, str]:
        if self._by_collision_key is None:
            self._by_collision_key = {collision_key(name): name for name in self._runtime.store.topics()}
        return self._by_collision_key


def _partition_count(runtime: Runtime, topic: Any) -> int:
    assignments: Sequence[Any] = topic.assignments
    if assignments:
        return len(assignments)
    return int(runtime.config.num_partitions if topic.num_partitions == NOT_GIVEN else topic.num_partitions)


def _refused(name: str, fault: Fault) -> Fields:
    return {
        "name": name,
        "topic_id": None,
        "error_code": fault.code,
        "error_message": fault.message,
        "num_partitions": NOT_GIVEN,
        "replication_factor": NOT_GIVEN,
        "configs": [],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {"topics": [_refused(topic.name, fault) for topic in request.message.topics]}


API = Api(19, "CreateTopics", 2, 7, handle, refuse)
