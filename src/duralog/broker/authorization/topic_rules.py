"""Rules of the APIs about topics that are more than one of `rule_kinds`: by id, or with a second permission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from duralog.broker.authorization.rule_kinds import Amend, Guard, Rule, add_results, take_out
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.leadership import NOT_ASKED
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Api, Fields, Request
from duralog.storage.metadata.acls import CLUSTER_NAME, Operation, ResourceType

_REFUSED = codes.TOPIC_AUTHORIZATION_FAILED
_FIRST_METADATA_WITHOUT_ALL = 1
"""Up to the version before, a list without topics asks for all."""


def topic_name(guard: Guard, topic: Any) -> str | None:
    """The name of a topic that a request names or gives the id of; None for an unknown id: the handler answers it."""
    name: str | None = getattr(topic, "name", None)
    if name is None:
        name = getattr(topic, "topic", None)
    if name is not None:
        return name
    topic_id = getattr(topic, "topic_id", None)
    view = None if topic_id is None else guard.topics.by_id(topic_id)
    return None if view is None else view.name


def refused_topics(guard: Guard, request: Request, operation: Operation, names: Iterable[str | None]) -> set[str]:
    """Those that the sender may not do this with. Each is checked and reported once."""
    return {
        name
        for name in dict.fromkeys(names)
        if name is not None and not guard.authorizer.allows(request, operation, ResourceType.TOPIC, name)
    }


def each_topic(
    operation: Operation, asked: str = "topics", answered: str = "topics", *, unless: Operation | None = None
) -> Rule:
    """The operation on each topic, by name or id, unless the sender may do `unless` on the cluster."""

    def check(guard: Guard, api: Api, request: Request) -> Amend | None:
        if unless is not None and may_on_cluster(guard, request, unless):
            return None
        names = (topic_name(guard, topic) for topic in getattr(request.message, asked))
        refused = refused_topics(guard, request, operation, names)
        if not refused:
            return None
        return take_out(api, request, asked, answered, lambda topic: topic_name(guard, topic) in refused, _REFUSED)

    return check


def may_on_cluster(guard: Guard, request: Request, operation: Operation) -> bool:
    return guard.authorizer.shows(request, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def metadata(guard: Guard, _: Api, request: Request) -> Amend:
    """DESCRIBE of each topic, and CREATE of the topic or on the cluster for a missing one that would be created."""
    message = request.message
    asked = message.topics
    if asked is None or (request.version < _FIRST_METADATA_WITHOUT_ALL and not asked):
        return lambda answer: _only_shown(guard, request, answer)
    by_id = any(optional(topic, "topic_id") is not None for topic in asked)
    names = {id(topic): topic_name(guard, topic) for topic in asked}
    refused = refused_topics(guard, request, Operation.DESCRIBE, names.values())
    results: list[Fields] = []
    if optional(message, "allow_auto_topic_creation", True) and not by_id:
        missing = [name for name in names.values() if name and name not in refused and not guard.has_topic(name)]
        if guard.creates_topics and missing and not may_on_cluster(guard, request, Operation.CREATE):
            not_created = refused_topics(guard, request, Operation.CREATE, missing)
            results += [_topic(name, name in INTERNAL_TOPICS) for name in not_created]
            refused |= not_created
    for name in refused - {result["name"] for result in results}:
        view = guard.topics.by_name(name) if by_id else None
        results.append(_topic(name) if view is None else {**_topic(None), "topic_id": view.topic_id})
    kept = tuple(topic for topic in asked if names[id(topic)] not in refused)
    request.message = replace(message, topics=kept)
    is_empty = not kept

    def amend(answer: Fields) -> Fields:
        # Version 0 would list all topics for none.
        there = () if is_empty else answer["topics"]
        return {**answer, "topics": [*results, *there]}

    return amend


def _only_shown(guard: Guard, request: Request, answer: Fields) -> Fields:
    shows = guard.authorizer.shows
    topics = [one for one in answer["topics"] if shows(request, Operation.DESCRIBE, ResourceType.TOPIC, one["name"])]
    return {**answer, "topics": topics}


def _topic(name: str | None, is_internal: bool = False) -> Fields:
    """A refused topic. Its id is not revealed."""
    return {
        "error_code": _REFUSED,
        "name": name,
        "topic_id": None,
        "is_internal": is_internal,
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }


def describe_topic_partitions(guard: Guard, _: Api, request: Request) -> Fields | Amend | None:
    """DESCRIBE of each topic. The handler leaves out others where it lists all: pages are cut after that."""
    asked = request.message.topics
    refused = refused_topics(guard, request, Operation.DESCRIBE, (topic.name for topic in asked))
    if not refused:
        return None
    results = [_topic(name) for name in sorted(refused)]
    kept = tuple(topic for topic in asked if topic.name not in refused)
    if not kept:
        return {"topics": results, "next_cursor": None}
    request.message = replace(request.message, topics=kept)
    return add_results("topics", results)


def create_topics(guard: Guard, api: Api, request: Request) -> Amend | None:
    """CREATE on the cluster or of each topic. Only who may see configs gets them, and the numbers, in the answer."""
    amends: list[Amend] = []
    names = dict.fromkeys(topic.name for topic in request.message.topics)
    if not may_on_cluster(guard, request, Operation.CREATE):
        refused = refused_topics(guard, request, Operation.CREATE, names)
        if refused:
            amends.append(
                take_out(
                    api,
                    request,
                    "topics",
                    "topics",
                    lambda topic: topic.name in refused,
                    _REFUSED,
                    "Authorization failed.",
                )
            )
    shows = guard.authorizer.shows
    hidden = {name for name in names if not shows(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)}
    if not amends and not hidden:
        return None

    def amend(answer: Fields) -> Fields:
        topics = [_without_configs(one) if one["name"] in hidden else one for one in answer["topics"]]
        answer = {**answer, "topics": topics}
        for each in amends:
            answer = each(answer)
        return answer

    return amend


def _without_configs(topic: Fields) -> Fields:
    if topic["error_code"] != codes.NONE:
        return topic
    hidden = {"num_partitions": -1, "replication_factor": -1, "configs": [], "topic_config_error_code": _REFUSED}
    return {**topic, **hidden}


def delete_topics(guard: Guard, _: Api, request: Request) -> Amend | None:
    """DELETE on the cluster or of each topic. Who may not describe a topic does not learn the name of its id."""
    if may_on_cluster(guard, request, Operation.DELETE):
        return None
    message = request.message
    by_name = hasattr(message, "topic_names")
    asked = message.topic_names if by_name else message.topics
    results: list[Fields] = []
    kept = []
    for topic in asked:
        name = topic if by_name else topic_name(guard, topic)
        if name is None or (not by_name and topic.name is not None and topic.topic_id is not None):
            kept.append(topic)
            continue
        # An unknown topic is only reported as such to who may describe it.
        is_there = guard.has_topic(name)
        wanted = Operation.DELETE if is_there else Operation.DESCRIBE
        if guard.authorizer.allows(request, wanted, ResourceType.TOPIC, name):
            kept.append(topic)
            continue
        topic_id = None if by_name else topic.topic_id
        is_shown = topic_id is None or guard.authorizer.shows(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
        results.append(
            {
                "name": name if is_shown else None,
                "topic_id": topic_id,
                "error_code": _REFUSED,
                "error_message": "Topic authorization failed.",
            }
        )
    if not results:
        return None
    request.message = replace(message, **{"topic_names" if by_name else "topics": tuple(kept)})
    return add_results("responses", results)
