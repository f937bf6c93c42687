"""Reads and changes the broker configs of a running broker, duralog's or Kafka's, and reads those of topics.

`confluent-kafka` cannot name the configs of all brokers, whose resource has an empty name. One connection is enough, so
that a broker with a low `max.connections` can still be changed.

| API | version | |
|---|---|---|
| Metadata | 1 | lists the brokers |
| DescribeConfigs | 1 | all values of a config, including those without effect |
| IncrementalAlterConfigs | 0 | |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from duralog.client.api import Api
from duralog.client.wire import WireConnection
from duralog.config.entries import PASSWORD, Entry, Value
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct
from duralog.storage.metadata.cluster_metadata import BROKER_RESOURCE

_SET, _DELETE = 0, 1
"""What to do with a config, by Kafka's numbers."""
_WRAPPED = re.compile(r"Invalid value [a-z.]+ConfigException: (.*) for configuration Invalid dynamic configuration")

_BROKER = Struct(
    (
        Field("node_id", "int32"),
        Field("host", "string"),
        Field("port", "int32"),
        Field("rack", "string", nullable=True),
    )
)
_METADATA = Api(
    key=3,
    version=1,
    request=Message("MetadataRequest", (Field("topics", ArrayOf("string")),), last_version=1, flexible_since=None),
    response=Message(
        "MetadataResponse",
        (Field("brokers", ArrayOf(_BROKER)), Field("controller_id", "int32"), Field("topics", ArrayOf("string"))),
        last_version=1,
        flexible_since=None,
    ),
)

_ASKED = Struct(
    (Field("type", "int8"), Field("name", "string"), Field("configs", ArrayOf("string"), nullable=True)),
)
_SYNONYM = Struct((Field("name", "string"), Field("value", "string", nullable=True), Field("source", "int8")))
_CONFIG = Struct(
    (
        Field("name", "string"),
        Field("value", "string", nullable=True),
        Field("read_only", "boolean"),
        Field("source", "int8"),
        Field("is_sensitive", "boolean"),
        Field("synonyms", ArrayOf(_SYNONYM)),
    )
)
_RESULT = (
    Field("error_code", "int16"),
    Field("error_message", "string", nullable=True),
    Field("type", "int8"),
    Field("name", "string"),
)
_DESCRIBE = Api(
    key=32,
    version=1,
    request=Message(
        "DescribeConfigsRequest",
        (Field("resources", ArrayOf(_ASKED)), Field("with_synonyms", "boolean")),
        last_version=1,
        flexible_since=None,
    ),
    response=Message(
        "DescribeConfigsResponse",
        (
            Field("throttle_ms", "int32"),
            Field("results", ArrayOf(Struct((*_RESULT, Field("configs", ArrayOf(_CONFIG)))))),
        ),
        last_version=1,
        flexible_since=None,
    ),
)

_CHANGE = Struct((Field("name", "string"), Field("operation", "int8"), Field("value", "string", nullable=True)))
_CHANGED = Struct((Field("type", "int8"), Field("name", "string"), Field("configs", ArrayOf(_CHANGE))))
_ALTER = Api(
    key=44,
    version=0,
    request=Message(
        "IncrementalAlterConfigsRequest",
        (Field("resources", ArrayOf(_CHANGED)), Field("validate_only", "boolean")),
        flexible_since=None,
    ),
    response=Message(
        "IncrementalAlterConfigsResponse",
        (Field("throttle_ms", "int32"), Field("results", ArrayOf(Struct(_RESULT)))),
        flexible_since=None,
    ),
)


class ConfigClient(WireConnection):
    def node_id(self) -> int:
        """The id of the broker at this address: a Kafka broker only describes its own configs."""
        brokers = self.ask(_METADATA, {"topics": []})["brokers"]
        for broker in brokers:
            result = self._describe(BROKER_RESOURCE, str(broker["node_id"]), names=["node.id"])
            if result["error_code"] == 0:
                return int(broker["node_id"])
        raise self.error(f"none of {len(brokers)} brokers shows its configs there")

    def entries(self, resource: str, resource_type: int = BROKER_RESOURCE) -> list[Entry]:
        """The configs of a broker by its id, those that are set for `ALL_BROKERS`, or those of a topic."""
        result = self._describe(resource_type, resource, names=None)
        self._check(result)
        return [
            Entry(
                name=config["name"],
                text=config["value"],
                values=tuple(Value(each["name"], each["value"], each["source"]) for each in config["synonyms"]),
                kind=PASSWORD if config["is_sensitive"] else "unknown",
                doc="",
                read_only=config["read_only"],
                source=config["source"],
            )
            for config in result["configs"]
        ]

    def alter(self, resource: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Set configs; None removes one."""
        configs = [
            {"name": name, "operation": _DELETE if text is None else _SET, "value": text}
            for name, text in changes.items()
        ]
        resources = [{"type": BROKER_RESOURCE, "name": resource, "configs": configs}]
        response = self.ask(_ALTER, {"resources": resources, "validate_only": validate_only})
        for result in response["results"]:
            self._check(result)

    def _describe(self, resource_type: int, resource: str, names: list[str] | None) -> dict[str, Any]:
        resources = [{"type": resource_type, "name": resource, "configs": names}]
        results = self.ask(_DESCRIBE, {"resources": resources, "with_synonyms": True})["results"]
        if len(results) != 1:
            raise self.error(f"{len(results)} results of DescribeConfigs for one resource")
        return dict(results[0])

    def _check(self, result: Mapping[str, Any]) -> None:
        if result["error_code"]:
            reason = result["error_message"] or f"the broker returns error code {result['error_code']}"
            raise self.error(plain_reason(reason))


def plain_reason(message: str) -> str:
    """Kafka's message without the names of Java exceptions."""
    wrapped = _WRAPPED.fullmatch(message)
    return (wrapped[1] if wrapped else message).removeprefix("requirement failed: ")
