"""duralog's authorizer and Kafka's StandardAuthorizer, with the same random entries and the same questions."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from duralog.broker.authorization.authorizer import Authorizer, parse_super_users
from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import Request
from duralog.storage.metadata.acls import (
    OPERATIONS_OF,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from oracle.kafka_process import KafkaProcess

pytestmark = pytest.mark.interop

_CASES = 60
_QUESTIONS = 100
_FILTERS = 20

NAMES = (
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "ba",
    "*",
    "*a",
    "!",
    "+",
    "payments",
    "payments-eu",
    "pay",
    "p",
    "é",
    "kafka-cluster",
)
HOSTS = ("127.0.0.1", "10.0.0.7", "192.168.1.1")
SENDERS = ("User:alice", "User:bob", "Group:alice", "User:CN=x,O=y", "User:with:colon")
PRINCIPALS = ("User:*", *SENDERS)
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)


def random_acl(dice: random.Random) -> Acl:
    kind = dice.choice(TYPES)
    return Acl(
        kind,
        dice.choice(NAMES),
        dice.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        dice.choice(PRINCIPALS),
        dice.choice(("*", "*", *HOSTS)),
        dice.choice((Operation.ALL, *OPERATIONS_OF[kind])),
        dice.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def random_case(dice: random.Random) -> dict[str, Any]:
    return {
        "acls": list({random_acl(dice) for _ in range(dice.choice((0, 2, 8, 30, 100)))}),
        "super_users": dice.choice(("", "User:root", "User:bob; User:root")),
        "allow_everyone": dice.choice(("true", "false")),
        "questions": [
            (
                dice.choice(SENDERS),
                dice.choice(HOSTS),
                dice.choice(OPERATIONS_OF[kind]),
                kind,
                None if dice.random() < 0.2 else dice.choice((*NAMES, "abcd", "payments-us", "zz", "!x")),
            )
            for kind in (dice.choice(TYPES) for _ in range(_QUESTIONS))
        ],
        "filters": [
            AclFilter(
                dice.choice((ResourceType.ANY, *TYPES)),
                dice.choice((None, *NAMES, "abcd", "payments-us")),
                dice.choice((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
                dice.choice((None, None, *PRINCIPALS)),
                dice.choice((None, None, "*", *HOSTS)),
                dice.choice((Operation.ANY, Operation.ANY, Operation.ALL, Operation.READ)),
                dice.choice((Permission.ANY, Permission.ALLOW, Permission.DENY)),
            )
            for _ in range(_FILTERS)
        ],
    }


def request_of(principal: str, host: str) -> Request:
    kind, _, name = principal.partition(":")
    return Request(0, 0, 0, "client", None, memoryview(b""), host, None, Principal(name, kind))


def test_every_decision_is_kafkas(kafka: KafkaProcess) -> None:
    dice = random.Random(7)
    cases = [random_case(dice) for _ in range(_CASES)]
    answers = kafka.ask(command="authorize", cases=cases)["cases"]
    seen = set()
    for case, answer in zip(cases, answers, strict=True):
        acls: list[Acl] = case["acls"]
        authorizer = Authorizer(
            partial(list, acls),
            parse_super_users(case["super_users"]),
            allow_if_no_acl=case["allow_everyone"] == "true",
        )
        for question, expected in zip(case["questions"], answer["allowed"], strict=True):
            principal, host, operation, kind, name = question
            request = request_of(principal, host)
            if name is None:
                found = authorizer.allows_any(request, operation, kind)
            else:
                found = authorizer.allows(request, operation, kind, name)
                assert authorizer.allows(request, operation, kind, name) is found
            assert found is expected, (question, case["acls"], case["super_users"], case["allow_everyone"])
            seen.add((name is None, found))
        for wanted, expected in zip(case["filters"], answer["selected"], strict=True):
            selected = {number for number, acl in enumerate(acls) if wanted.matches(acl)}
            assert selected == set(expected), (wanted, acls)
    assert len(seen) == 4
