"""Kinds of rules: each gets its arguments from the table in `rules`, and works for any API.

A rule sees a request before its handler does. It returns

- None: the handler gets the request as it is,
- the fields of an answer: the handler does not get the request,
- an `Amend`: the handler gets the rest of the request, and `Amend` completes its answer.

Elements that a rule removes from a request are answered by the API's own `refuse`, so that a refusal has the same shape
as any other error. Names that the sender may not see are never looked up: an answer does not depend on whether they
exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.runtime import Runtime
from duralog.broker.topics.leadership import NOT_ASKED
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Api, Fields, Request
from duralog.storage.metadata.acls import CLUSTER_NAME, Operation, ResourceType


@dataclass(frozen=True, slots=True)
class Guard:
    """What rules decide with."""

    authorizer: Authorizer
    topics: Topics
    runtime: Runtime

    def has_topic(self, name: str) -> bool:
        return self.topics.by_name(name) is not None

    @property
    def creates_topics(self) -> bool:
        return self.runtime.config.auto_create_topics_enable


Amend = Callable[[Fields], Fields]
Rule = Callable[[Guard, Api, Request], Fields | Amend | None]
NameOf = Callable[[Any], str]
"""The name of a resource, from the message or from an element of it."""

ERROR_CODES: Mapping[int, int] = {
    ResourceType.TOPIC: codes.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: codes.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: codes.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ERROR_TEXTS: Mapping[int, str] = {
    codes.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    codes.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    codes.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""The texts of Kafka's `Errors`."""


def anyone(_: Guard, __: Api, ___: Request) -> None:
    """Allowed for every client."""


def in_handler(_: Guard, __: Api, ___: Request) -> None:
    """The handler asks the authorizer itself: its requests or answers are not values but bytes."""


def all_of(*rules: Rule) -> Rule:
    """Applies the rules in order. The first refusal ends the request."""

    def check(guard: Guard, api: Api, request: Request) -> Fields | Amend | None:
        amends: list[Amend] = []
        for rule in rules:
            verdict = rule(guard, api, request)
            if verdict is None:
                continue
            if not callable(verdict):
                return verdict
            amends.append(verdict)
        return _in_order(amends) if amends else None

    return check


def _in_order(amends: Sequence[Amend]) -> Amend:
    def amend(answer: Fields) -> Fields:
        for each in amends:
            answer = each(answer)
        return answer

    return amend


_NEEDED = "Request {api} needs {operation} permission."


def on_cluster(*operations: Operation, text: str | None = _NEEDED) -> Rule:
    """One of the operations on the cluster, or the whole request is refused."""

    def check(guard: Guard, api: Api, request: Request) -> Fields | None:
        *others, last = operations
        authorizer = guard.authorizer
        if any(authorizer.shows(request, each, ResourceType.CLUSTER, CLUSTER_NAME) for each in others):
            return None
        if authorizer.allows(request, last, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        reason = None if text is None else text.format(api=api.name, operation=last.name)
        return api.refuse(request, codes.CLUSTER_AUTHORIZATION_FAILED, reason)

    return check


def whole(operation: Operation, resource_type: ResourceType, name_of: NameOf, text: str | None = None) -> Rule:
    """The operation on the one resource that the message names, or the whole request is refused."""

    def check(guard: Guard, api: Api, request: Request) -> Fields | None:
        if guard.authorizer.allows(request, operation, resource_type, name_of(request.message)):
            return None
        return api.refuse(request, ERROR_CODES[resource_type], text)

    return check


def each(
    operation: Operation,
    resource_type: ResourceType,
    asked: str,
    answered: str,
    name_of: NameOf,
    *,
    text: str | None = None,
    first: bool = False,
) -> Rule:
    """The operation on the resource of each element of the field `asked`; the others are refused one by one.

    Their results go into the field `answered`, after those of the handler or `first`.
    """

    def check(guard: Guard, api: Api, request: Request) -> Amend | None:
        elements = getattr(request.message, asked)
        names = dict.fromkeys(map(name_of, elements))
        refused = {name for name in names if not guard.authorizer.allows(request, operation, resource_type, name)}
        if not refused:
            return None
        return take_out(
            api,
            request,
            asked,
            answered,
            lambda element: name_of(element) in refused,
            ERROR_CODES[resource_type],
            text,
            first=first,
        )

    return check


def take_out(  # More than seven parameters: those of `each`, decided.
    api: Api,
    request: Request,
    asked: str,
    answered: str,
    is_refused: Callable[[Any], bool],
    error_code: int,
    text: str | None = None,
    *,
    first: bool = False,
) -> Amend:
    """Take elements out of a request. Their results are those of `Api.refuse`."""
    message = request.message
    elements = getattr(message, asked)
    of_refused = replace(request, message=replace(message, **{asked: tuple(filter(is_refused, elements))}))
    results = api.refuse(of_refused, error_code, text)[answered]
    request.message = replace(message, **{asked: tuple(one for one in elements if not is_refused(one))})
    return add_results(answered, results, first=first)


def add_results(answered: str, results: Sequence[Fields], *, first: bool = False) -> Amend:
    def amend(answer: Fields) -> Fields:
        there = answer.get(answered, ())
        return {**answer, answered: [*results, *there] if first else [*there, *results]}

    return amend


def hide(
    operation: Operation, resource_type: ResourceType, answered: str, name: str, *, unless: Operation | None = None
) -> Rule:
    """Elements that the sender may not see are left out of the answer, unless it may do the operation on the
    cluster.
    """

    def check(guard: Guard, _: Api, request: Request) -> Amend | None:
        authorizer = guard.authorizer
        if unless is not None and authorizer.shows(request, unless, ResourceType.CLUSTER, CLUSTER_NAME):
            return None

        def amend(answer: Fields) -> Fields:
            shown = [one for one in answer[answered] if authorizer.shows(request, operation, resource_type, one[name])]
            return {**answer, answered: shown}

        return amend

    return check


def operations_of(resource_type: ResourceType, answered: str, name: str, field: str) -> Rule:
    """The bits of the operations that the sender may do, in each element of the answer that has them."""

    def check(guard: Guard, _: Api, request: Request) -> Amend:
        def amend(answer: Fields) -> Fields:
            return {**answer, answered: [with_bits(one) for one in answer[answered]]}

        def with_bits(one: Fields) -> Fields:
            if one.get(field, NOT_ASKED) == NOT_ASKED or one[name] is None:
                return one
            return {**one, field: guard.authorizer.allowed_operations(request, resource_type, one[name])}

        return amend

    return check


def operations_of_cluster(field: str) -> Rule:
    """The bits of the operations on the cluster; none if the sender may not describe it."""

    def check(guard: Guard, _: Api, request: Request) -> Amend:
        def amend(answer: Fields) -> Fields:
            if answer.get(field, NOT_ASKED) == NOT_ASKED:
                return answer
            if not guard.authorizer.allows(request, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
                return {**answer, field: 0}
            return {**answer, field: guard.authorizer.allowed_operations(request, ResourceType.CLUSTER, CLUSTER_NAME)}

        return amend

    return check
