"""A client for the configs of a running broker, duralog's or Kafka's: one connection, and nothing to install for it.

The client library of the other commands cannot name the configs of all brokers, whose resource has an empty name. Here
they can be set and reset. One connection is enough, so that a broker with a low `max.connections` can still be changed.

| API | version | |
|---|---|---|
| Metadata | 1 | which brokers there are |
| DescribeConfigs | 1 | all values of a config, those included that have no effect |
| IncrementalAlterConfigs | 0 | |

Answers are checked before they are used: their length, and every length and count in them.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from duralog.broker.configs.changes import DELETE, SET
from duralog.broker.configs.resources import Entry, Value
from duralog.broker.net.listening import Address, parse_address
from duralog.broker.wire.resource_types import BROKER
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct, decode_message, encode_message

_METADATA, _DESCRIBE, _ALTER = 3, 32, 44
_VERSIONS = {_METADATA: 1, _DESCRIBE: 1, _ALTER: 0}
_CLIENT = b"duralog"
_PATIENCE_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_LARGEST_ANSWER = 64 << 20
_WRAPPED = re.compile(r"Invalid value [a-z.]+ConfigException: (.*) for configuration Invalid dynamic configuration")
_SECRET_KINDS = {True: "password", False: "unknown"}

_BROKER = Struct(
    (
        Field("node_id", "int32"),
        Field("host", "string"),
        Field("port", "int32"),
        Field("rack", "string", nullable=True),
    )
)
_METADATA_REQUEST = Message(
    "MetadataRequest", (Field("topics", ArrayOf("string")),), last_version=1, flexible_since=None
)
_METADATA_ANSWER = Message(
    "MetadataResponse",
    (Field("brokers", ArrayOf(_BROKER)), Field("controller_id", "int32"), Field("topics", ArrayOf("string"))),
    last_version=1,
    flexible_since=None,
)
_DESCRIBE_REQUEST = Message(
    "DescribeConfigsRequest",
    (
        Field(
            "resources",
            ArrayOf(
                Struct(
                    (
                        Field("type", "int8"),
                        Field("name", "string"),
                        Field("configs", ArrayOf("string"), nullable=True),
                    )
                )
            ),
        ),
        Field("with_synonyms", "boolean"),
    ),
    last_version=1,
    flexible_since=None,
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
_DESCRIBE_ANSWER = Message(
    "DescribeConfigsResponse",
    (
        Field("throttle_ms", "int32"),
        Field("results", ArrayOf(Struct((*_RESULT, Field("configs", ArrayOf(_CONFIG)))))),
    ),
    last_version=1,
    flexible_since=None,
)
_CHANGE = Struct((Field("name", "string"), Field("operation", "int8"), Field("value", "string", nullable=True)))
_ALTER_REQUEST = Message(
    "IncrementalAlterConfigsRequest",
    (
        Field(
            "resources",
            ArrayOf(Struct((Field("type", "int8"), Field("name", "string"), Field("configs", ArrayOf(_CHANGE))))),
        ),
        Field("validate_only", "boolean"),
    ),
    flexible_since=None,
)
_ALTER_ANSWER = Message(
    "IncrementalAlterConfigsResponse",
    (Field("throttle_ms", "int32"), Field("results", ArrayOf(Struct(_RESULT)))),
    flexible_since=None,
)


class ConfigClient:
    """A connection to the first of the addresses that answers. Raises `DuralogError` if none does."""

    def __init__(self, addresses: str) -> None:
        self._where = addresses
        self._correlation_id = 0
        self._socket = self._connected([parse_address(each) for each in addresses.split(",")])

    def _connected(self, addresses: Iterable[Address]) -> socket.socket:
        reason = ""
        for address in addresses:
            try:
                connected = socket.create_connection((address.host, address.port), timeout=_CONNECT_SECONDS)
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            connected.settimeout(_PATIENCE_SECONDS)
            return connected
        raise DuralogError(
            f"{self._where}: no broker answers there ({reason}): check the address, and whether it runs (duralog serve)"
        )

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> ConfigClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def node_id(self) -> int:
        """Of the broker at this address: a broker of Kafka only answers for itself."""
        brokers = self._ask(_METADATA, _METADATA_REQUEST, _METADATA_ANSWER, {"topics": []})["brokers"]
        for broker in brokers:
            result = self._describe(str(broker["node_id"]), names=["node.id"])
            if result["error_code"] == 0:
                return int(broker["node_id"])
        raise DuralogError(f"{self._where}: none of {len(brokers)} brokers shows its configs there")

    def entries(self, resource: str) -> list[Entry]:
        """The configs of a broker by its id, or what is set for `ALL_BROKERS`."""
        result = self._describe(resource, names=None)
        self._check(result)
        return [
            Entry(
                name=config["name"],
                text=config["value"],
                values=tuple(Value(each["name"], each["value"], each["source"]) for each in config["synonyms"]),
                kind=_SECRET_KINDS[config["is_sensitive"]],
                doc="",
                read_only=config["read_only"],
                source=config["source"],
            )
            for config in result["configs"]
        ]

    def alter(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Set configs, or with None take them back."""
        configs = [
            {"name": name, "operation": DELETE if text is None else SET, "value": text}
            for name, text in changes.items()
        ]
        resources = [{"type": BROKER, "name": resource, "configs": configs}]
        answer = self._ask(_ALTER, _ALTER_REQUEST, _ALTER_ANSWER, {"resources": resources, "validate_only": False})
        for result in answer["results"]:
            self._check(result)

    def _describe(self, resource: str, names: list[str] | None) -> dict[str, Any]:
        resources = [{"type": BROKER, "name": resource, "configs": names}]
        fields = {"resources": resources, "with_synonyms": True}
        results = self._ask(_DESCRIBE, _DESCRIBE_REQUEST, _DESCRIBE_ANSWER, fields)["results"]
        if len(results) != 1:
            raise DuralogError(f"{self._where}: {len(results)} answers to one question about configs")
        return dict(results[0])

    def _check(self, result: Mapping[str, Any]) -> None:
        if result["error_code"]:
            reason = result["error_message"] or f"it answers with the error code {result['error_code']}"
            raise DuralogError(f"{self._where}: {plain_reason(reason)}")

    def _ask(self, api: int, request: Message, answer: Message, fields: Mapping[str, Any]) -> dict[str, Any]:
        version = _VERSIONS[api]
        self._correlation_id += 1
        header = struct.pack(">hhih", api, version, self._correlation_id, len(_CLIENT)) + _CLIENT
        body = header + encode_message(request, version, fields)
        try:
            self._socket.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= _LARGEST_ANSWER:
                raise DuralogError(
                    f"{self._where}: an answer of {size} bytes: this is not a broker of Kafka's protocol"
                )
            data = self._exactly(size)
        except ConnectionError:  # A reset or a broken pipe: the broker closed it before it had read the request.
            raise self._closed_by_broker() from None
        except OSError as error:
            raise DuralogError(f"{self._where}: {error.strerror or error}") from error
        try:
            return decode_message(answer, version, data, 4)
        except CorruptRecord as error:
            raise DuralogError(f"{self._where}: an answer that cannot be read: {error}") from None

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise self._closed_by_broker()
            data += part
        return bytes(data)

    def _closed_by_broker(self) -> DuralogError:
        return DuralogError(
            f"{self._where}: the broker closed the connection: if a limit such as max.connections refuses it,"
            " stop the broker and change its directory, or start it with --override"
        )


def plain_reason(message: str) -> str:
    """What Kafka's message says, without the names of Java's exceptions."""
    wrapped = _WRAPPED.fullmatch(message)
    return (wrapped[1] if wrapped else message).removeprefix("requirement failed: ")
