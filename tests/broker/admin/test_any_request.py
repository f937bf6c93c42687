"""Requests of the admin APIs with anything in them: each is answered by its schema, and none surprises the broker.

Names, ids and numbers are drawn from a few that exist, are at the edge of what is allowed, or are beyond it.
"""

from __future__ import annotations

import dataclasses
import math
import random
import types
import typing
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema

from duralog.broker.broker import Broker
from duralog.broker.handlers import load_apis
from tests.support.broker.admin_desk import append, make
from tests.support.broker.raw_client import RawClient

APIS = (2, 3, 19, 20, 21, 23, 32, 33, 34, 35, 37, 43, 44, 45, 46, 48, 49, 55, 57, 60, 61, 74, 75)
REQUESTS = 60
NUMBERS = (-(2**63), -(2**31), -7, -6, -5, -4, -3, -2, -1, 0, 0, 0, 1, 1, 2, 3, 4, 8, 16, 32, 99, 2**31 - 1, 2**63 - 1)
TEXTS = (
    *("t", "t", "u", "u.v", "u_v", "new", "__consumer_offsets", "__cluster_metadata", "", ".", "a b", "\0", "é"),
    *("x" * 250, "1", "2", "-1", "retention.ms", "cleanup.policy", "segment.bytes", "log.retention.ms", "listeners"),
    *("num.partitions", "consumer.session.timeout.ms", "root", "INFO", "compact", "delete,", ",", "5000", "true"),
    *("user", "user", "client-id", "ip", "127.0.0.1", "producer_byte_rate", "request_percentage", "group.version"),
    "99999999999999999999",
)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 64}


class Draw:
    def __init__(self, seed: int, ids: list[uuid.UUID]) -> None:
        self._random = random.Random(seed)
        self._ids = [*ids, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]

    def message(self, schema: Any) -> dict[str, Any]:
        hints = typing.get_type_hints(schema)
        return {
            field.name: self._value(hints[field.name], field.metadata.get("kafka_type"))
            for field in dataclasses.fields(schema)
        }

    def _value(self, hint: Any, kind: str | None) -> Any:
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if type(None) in options and self._random.random() < 0.3:
            return None
        (hint,) = (option for option in options if option is not type(None))
        if typing.get_origin(hint) is tuple:
            return [self._value(typing.get_args(hint)[0], kind) for _ in range(self._random.choice((0, 1, 1, 2, 3)))]
        if dataclasses.is_dataclass(hint):
            return self.message(hint)
        if kind == "uuid":
            return self._random.choice(self._ids)
        if kind == "bool":
            return self._random.random() < 0.5
        if kind == "string":
            return self._random.choice(TEXTS)
        if kind == "float64":
            return self._random.choice((-1.0, 0.0, 0.5, 1e9, 1e12, 1e300, math.inf, math.nan))
        assert kind is not None
        limit = 2 ** (BITS[kind] - 1)
        if kind.startswith("timedelta"):
            return self._random.choice((-1, 0, 1000, 1000, 1000, 1000))
        return max(min(self._random.choice(NUMBERS), limit - 1), -limit)


@pytest.fixture
def ids(client: RawClient, broker: Broker) -> list[uuid.UUID]:
    ids = [make(client, "t", 3), make(client, "u"), make(client, "u.v", cleanup_policy="compact")]
    append(broker, "t", 0, [1_700_000_000_000] * 5, producer_id=3, producer_epoch=0, base_sequence=0)
    return ids


@pytest.mark.parametrize("api_key", APIS)
def test_every_request_is_answered(
    api_key: int, client: RawClient, broker: Broker, ids: list[uuid.UUID], caplog: pytest.LogCaptureFixture
) -> None:
    api = load_apis()[api_key]
    draw = Draw(api_key, ids)
    for number in range(REQUESTS):
        version = api.min_version + number % (api.max_version - api.min_version + 1)
        fields = draw.message(load_request_schema(api_key, version))
        client.ask(api_key, version, fields)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "could not be created for a client that asked for it" not in line] == []
    assert broker.store.background_errors == ()
