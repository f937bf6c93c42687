"""Requests and answers as bytes on a plain socket.

Messages are plain values: dicts with kio's field names, ints for times in milliseconds and for error codes. kio writes
them; answers are read by kio's schemas. A field that a request does not name takes the protocol's default. Where a
wrong request cannot be said in a message, the bytes are sent as they are.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import socket
import struct
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

CLIENT_ID = "conformance"
ANSWER_SECONDS = 60
"""Only a server that hangs takes that long."""

API_KEYS = {name: key for key, name in api_key_map.items()}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ZEROES: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": UUID(int=0),
    "float64": 0.0,
}

Fields = dict[str, Any]


class Closed(Exception):
    """The server closed the connection instead of answering."""


class Connection:
    """One connection. Requests go out at once; answers are taken in the order in which they come."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self.socket.makefile("rb")
        self._sent = 0

    def close(self) -> None:
        self._answers.close()
        self.socket.close()

    def send(self, api: str, version: int, fields: Mapping[str, Any], client_id: str | None = CLIENT_ID) -> int:
        """Returns the correlation id."""
        self._sent += 1
        body = encode_request(api, version, fields)
        self.send_frame(header(API_KEYS[api], version, self._sent, client_id, is_flexible(api, version)) + body)
        return self._sent

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed from error

    def receive_frame(self) -> bytes:
        try:
            prefix = self._answers.read(4)
            if len(prefix) < 4:
                raise Closed
            (size,) = struct.unpack(">i", prefix)
            frame = self._answers.read(size)
        except ConnectionResetError as error:
            raise Closed from error
        if len(frame) < size:
            raise Closed
        return frame

    def receive(self, api: str, version: int, correlation_id: int) -> Fields:
        frame = self.receive_frame()
        (answered,) = struct.unpack_from(">i", frame)
        assert answered == correlation_id, f"{api} v{version}: answer to {answered}, not to {correlation_id}"
        start = 4
        if is_flexible(api, version) and api != "api_versions":
            assert frame[4] == 0, f"{api} v{version}: tagged fields in the header of the answer"
            start = 5
        return decode_response(api, version, frame[start:])

    def ask(self, api: str, version: int, fields: Mapping[str, Any]) -> Fields:
        return self.receive(api, version, self.send(api, version, fields))


def header(api_key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    return struct.pack(">hhih", api_key, version, correlation_id, size) + name + b"\0" * flexible


@cache
def is_flexible(api: str, version: int) -> bool:
    flexible: bool = load_request_schema(API_KEYS[api], version).__flexible__
    return flexible


def encode_request(api: str, version: int, fields: Mapping[str, Any]) -> bytes:
    unknown = fields.keys() - _request_fields(api)
    if unknown:
        raise ValueError(f"{api} has no fields {sorted(unknown)} in any version; it has {sorted(_request_fields(api))}")
    entity_type: Any = load_request_schema(API_KEYS[api], version)
    with io.BytesIO() as buffer:
        entity_writer(entity_type)(buffer, _entity(entity_type, fields))
        return buffer.getvalue()


def decode_response(api: str, version: int, body: bytes) -> Fields:
    """By kio's schemas, but not by its reader: that has no word for a start time of -1, which Kafka sends."""
    reader = _Reader(body)
    fields = reader.entity(load_response_schema(API_KEYS[api], version))
    if reader.position != len(body):
        raise ValueError(f"{api} v{version}: bytes behind the answer: {body[reader.position :].hex()}")
    return fields


_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "bool": ">?",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}


class _Reader:
    """Plain values from the bytes of a message."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def entity(self, entity_type: Any) -> Fields:
        fields: Fields = {}
        tagged = {}
        flexible: bool = entity_type.__flexible__
        for field in dataclasses.fields(entity_type):
            kind = _hints(entity_type)[field.name]
            if "tag" in field.metadata:
                tagged[field.metadata["tag"]] = field, kind
                fields[field.name] = None
            else:
                fields[field.name] = self._field(kind, field.metadata.get("kafka_type"), flexible, tagged=False)
        if flexible:
            for _ in range(self._varint()):
                tag, size = self._varint(), self._varint()
                end = self.position + size
                field, kind = tagged[tag]
                fields[field.name] = self._field(kind, field.metadata.get("kafka_type"), flexible, tagged=True)
                if self.position != end:
                    raise ValueError(
                        f"{entity_type.__name__}: tagged field {tag} has {size} bytes, but not all are its"
                    )
        return fields

    def _field(self, kind: Any, kafka_type: str | None, flexible: bool, *, tagged: bool) -> Any:
        inner = _inner(kind)
        if typing.get_origin(inner) is tuple:
            count = self._varint() - 1 if flexible else self._number(">i")
            element = typing.get_args(inner)[0]
            return None if count < 0 else [self._one(element, kafka_type, flexible) for _ in range(count)]
        if dataclasses.is_dataclass(inner) and inner is not kind and not tagged and self._number(">b") < 0:
            return None
        return self._one(inner, kafka_type, flexible)

    def _one(self, kind: Any, kafka_type: str | None, flexible: bool) -> Any:
        if dataclasses.is_dataclass(kind):
            return self.entity(kind)
        if kafka_type == "uuid":
            return UUID(bytes=self._bytes(16))
        if kafka_type in _NUMBERS:
            return self._number(_NUMBERS[kafka_type])
        if flexible:
            size = self._varint() - 1
        else:
            size = self._number(">h" if kafka_type == "string" else ">i")
        if size < 0:
            return None
        data = self._bytes(size)
        return data.decode() if kafka_type == "string" else data

    def _bytes(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise ValueError(f"{size} bytes expected at {self.position} of {len(self.data)}")
        data = self.data[self.position : end]
        self.position = end
        return data

    def _number(self, layout: str) -> Any:
        (value,) = struct.unpack(layout, self._bytes(struct.calcsize(layout)))
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


@cache
def _request_fields(api: str) -> frozenset[str]:
    """The fields at the top of a request, over all versions."""
    return frozenset(
        field.name
        for version in schema_name_map[api]
        for field in dataclasses.fields(load_request_schema(API_KEYS[api], version))
    )


@cache
def _hints(entity_type: type) -> dict[str, Any]:
    return typing.get_type_hints(entity_type)


def _entity(entity_type: Any, fields: Mapping[str, Any]) -> Any:
    """The message. What this version does not have is left out, what is not given has its default."""
    values = {}
    for field in dataclasses.fields(entity_type):
        kind = _hints(entity_type)[field.name]
        if field.name in fields:
            values[field.name] = _value(kind, field.metadata.get("kafka_type"), fields[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _default(kind, field.metadata.get("kafka_type"))
    return entity_type(**values)


def _inner(kind: Any) -> Any:
    """The type without `| None`."""
    if isinstance(kind, types.UnionType):
        (kind,) = [each for each in typing.get_args(kind) if each is not type(None)]
    return kind


def _value(kind: Any, kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    kind = _inner(kind)
    if typing.get_origin(kind) is tuple:
        return tuple(_value(typing.get_args(kind)[0], kafka_type, each) for each in value)
    if dataclasses.is_dataclass(kind):
        return _entity(kind, value)
    if kafka_type is not None and kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type is not None and kafka_type.startswith("datetime"):
        return _EPOCH + datetime.timedelta(milliseconds=value)
    return value


def _default(kind: Any, kafka_type: str | None) -> Any:
    if isinstance(kind, types.UnionType):
        return None
    if typing.get_origin(kind) is tuple:
        return ()
    if dataclasses.is_dataclass(kind):
        return _entity(kind, {})
    return _value(kind, kafka_type, _ZEROES.get(kafka_type or "", 0))
