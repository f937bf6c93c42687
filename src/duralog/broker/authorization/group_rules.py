"""Rules of the APIs about groups and transactions that are more than one of `rule_kinds`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from duralog.broker.authorization.rule_kinds import ERROR_TEXTS, Amend, Guard, add_results
from duralog.broker.authorization.topic_rules import refused_topics, topic_name
from duralog.broker.groups.offsets.commits import no_offset
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Api, Fields, Request
from duralog.storage.metadata.acls import CLUSTER_NAME, Operation, ResourceType

_GROUP, _TRANSACTION = 0, 1
_COORDINATED = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_COORDINATOR_ERRORS = {
    _GROUP: codes.GROUP_AUTHORIZATION_FAILED,
    _TRANSACTION: codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_SEVERAL_COORDINATORS = 4
_SEVERAL_GROUPS = 8
_PARTITIONS_OF_BROKERS = 4
_NO_NODE: Fields = {"node_id": -1, "host": "", "port": -1}
_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def find_coordinator(guard: Guard, api: Api, request: Request) -> Fields | Amend | None:
    """DESCRIBE of the group or transactional id of each key."""
    message = request.message
    key_type = optional(message, "key_type", _GROUP)
    if key_type not in _COORDINATED:
        return None
    resource_type, code = _COORDINATED[key_type], _COORDINATOR_ERRORS[key_type]
    if request.version < _SEVERAL_COORDINATORS:
        if guard.authorizer.allows(request, Operation.DESCRIBE, resource_type, message.key):
            return None
        return api.refuse(request, code, ERROR_TEXTS[code])
    allows = guard.authorizer.allows
    keys = dict.fromkeys(message.coordinator_keys)
    refused = {key for key in keys if not allows(request, Operation.DESCRIBE, resource_type, key)}
    if not refused:
        return None
    kept = tuple(key for key in message.coordinator_keys if key not in refused)
    request.message = replace(message, coordinator_keys=kept)
    results = [
        {"key": key, "error_code": code, "error_message": "", **_NO_NODE}
        for key in message.coordinator_keys
        if key in refused
    ]
    return add_results("coordinators", results)


def fetched_offsets(guard: Guard, _: Api, request: Request) -> Amend | None:
    """DESCRIBE of each topic. Where all offsets of a group are asked for, others are left out."""
    message = request.message
    is_several = request.version >= _SEVERAL_GROUPS
    groups = message.groups if is_several else (message,)
    kept: list[Any] = []
    results: list[list[Fields]] = []
    is_changed = False
    for group in groups:
        refused: set[str] = set()
        if group.topics is None:
            is_changed = True
        else:
            names = (topic_name(guard, topic) for topic in group.topics)
            refused = refused_topics(guard, request, Operation.DESCRIBE, names)
            is_changed = is_changed or bool(refused)
        results.append([_refused_offsets(topic) for topic in group.topics or () if topic_name(guard, topic) in refused])
        if refused:
            left = tuple(topic for topic in group.topics if topic_name(guard, topic) not in refused)
            group = replace(group, topics=left)
        kept.append(group)
    if not is_changed:
        return None
    request.message = replace(message, groups=tuple(kept)) if is_several else kept[0]
    of_all = {group.group_id for group in groups if group.topics is None}

    def amend(answer: Fields) -> Fields:
        if not is_several:
            return _with_topics(guard, request, answer, results[0], is_all=bool(of_all))
        # The handler answers a group for which all offsets are asked only once.
        left = {group.group_id: list(more) for group, more in zip(groups, results, strict=True)}
        answered = [
            _with_topics(guard, request, one, left.pop(one["group_id"], []), is_all=one["group_id"] in of_all)
            for one in answer["groups"]
        ]
        return {**answer, "groups": answered}

    return amend


def _refused_offsets(topic: Any) -> Fields:
    partitions = [no_offset(number, codes.TOPIC_AUTHORIZATION_FAILED) for number in topic.partition_indexes]
    if hasattr(topic, "name"):
        return {"name": topic.name, "partitions": partitions}
    return {"topic_id": topic.topic_id, "partitions": partitions}


def _with_topics(guard: Guard, request: Request, group: Fields, refused: list[Fields], *, is_all: bool) -> Fields:
    if group.get("error_code", codes.NONE) != codes.NONE:
        return group
    topics = group["topics"]
    if is_all:
        shows = guard.authorizer.shows
        named = [(topic, _answered_name(guard, topic)) for topic in topics]
        topics = [
            topic
            for topic, name in named
            if name is not None and shows(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    return {**group, "topics": [*topics, *refused]}


def _answered_name(guard: Guard, topic: Fields) -> str | None:
    if "name" in topic:
        return str(topic["name"])
    view = guard.topics.by_id(topic["topic_id"])
    return None if view is None else view.name


def offset_delete(guard: Guard, _: Api, request: Request) -> Amend | None:
    """READ of each topic."""
    message = request.message
    refused = refused_topics(guard, request, Operation.READ, (topic.name for topic in message.topics))
    if not refused:
        return None
    results = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": codes.TOPIC_AUTHORIZATION_FAILED}
                for one in topic.partitions
            ],
        }
        for topic in message.topics
        if topic.name in refused
    ]
    request.message = replace(message, topics=tuple(topic for topic in message.topics if topic.name not in refused))
    amend = add_results("topics", results, first=True)
    # An error of the whole group has no topics.
    return lambda answer: answer if answer["error_code"] else amend(answer)


def subscribed_topics(guard: Guard, api: Api, request: Request) -> Fields | None:
    """ConsumerGroupHeartbeat: DESCRIBE of all topics that the member names."""
    names = request.message.subscribed_topic_names or ()
    if refused_topics(guard, request, Operation.DESCRIBE, names):
        return api.refuse(request, codes.TOPIC_AUTHORIZATION_FAILED, None)
    return None


def described_topics(guard: Guard, _: Api, request: Request) -> Amend:
    """ConsumerGroupDescribe: no members of a group with a topic that the sender may not describe."""
    shows = guard.authorizer.shows

    def is_shown(group: Fields) -> bool:
        names = {
            topic["topic_name"]
            for member in group.get("members", ())
            for assignment in ("assignment", "target_assignment")
            for topic in member[assignment]["topic_partitions"]
        }
        names |= {name for member in group.get("members", ()) for name in member["subscribed_topic_names"]}
        return all(shows(request, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)

    def hidden(group: Fields) -> Fields:
        refused = {"error_code": codes.TOPIC_AUTHORIZATION_FAILED, "error_message": _HIDDEN_TOPICS, "members": []}
        return {**group, **refused}

    return lambda answer: {
        **answer,
        "groups": [group if is_shown(group) else hidden(group) for group in answer["groups"]],
    }


def init_producer_id(guard: Guard, api: Api, request: Request) -> Fields | None:
    """WRITE of the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE of any topic."""
    authorizer, transactional_id = guard.authorizer, request.message.transactional_id
    if transactional_id is not None:
        if authorizer.allows(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return None
        return api.refuse(request, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
    if authorizer.allows_any(request, Operation.WRITE, ResourceType.TOPIC):
        return None
    if authorizer.allows(request, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    return api.refuse(request, codes.CLUSTER_AUTHORIZATION_FAILED, None)


def add_partitions_to_txn(guard: Guard, api: Api, request: Request) -> Fields | None:
    """WRITE of the transactional id and of each topic; CLUSTER_ACTION for the versions of brokers."""
    authorizer, message = guard.authorizer, request.message
    if request.version >= _PARTITIONS_OF_BROKERS:
        if authorizer.allows(request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        return api.refuse(request, codes.CLUSTER_AUTHORIZATION_FAILED, None)
    transactional_id = message.v3_and_below_transactional_id
    if not authorizer.allows(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return api.refuse(request, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
    topics = message.v3_and_below_topics
    refused = refused_topics(guard, request, Operation.WRITE, (topic.name for topic in topics))
    if not refused:
        return None
    results = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": _not_added(guard, topic.name, number, refused)}
                for number in topic.partitions
            ],
        }
        for topic in topics
    ]
    return {"results_by_topic_v3_and_below": results}


def _not_added(guard: Guard, name: str, number: int, refused: set[str]) -> int:
    """If one partition cannot be added, none is."""
    if name in refused:
        return codes.TOPIC_AUTHORIZATION_FAILED
    view = guard.topics.by_name(name)
    is_there = view is not None and number in view.partitions
    return codes.OPERATION_NOT_ATTEMPTED if is_there else codes.UNKNOWN_TOPIC_OR_PARTITION


def topics_of_transactions(guard: Guard, _: Api, request: Request) -> Amend:
    """DescribeTransactions: topics that the sender may not describe are left out."""
    shows = guard.authorizer.shows

    def shown(state: Fields) -> Fields:
        if "topics" not in state:
            return state
        topics = [
            one for one in state["topics"] if shows(request, Operation.DESCRIBE, ResourceType.TOPIC, one["topic"])
        ]
        return {**state, "topics": topics}

    return lambda answer: {**answer, "transaction_states": [shown(state) for state in answer["transaction_states"]]}
