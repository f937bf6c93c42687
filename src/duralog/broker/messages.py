"""Requests and answers as values, by the schemas of `kio`.

`kio` reads times as datetimes, which loses some and refuses others, and error codes as an enumeration, which refuses
those that it does not know. Here both are plain integers: for each class of kio a twin is made that says so, and kio's
own readers and writers work on the twin. Twins are made when a version of an API is first used.

Bytes that are not what the schema says raise `InvalidMessage`, whatever they are: nothing is trusted, and no count is
believed before that many bytes are there. Bytes after the end of a message are of no interest, as in Kafka.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from duralog.broker.request import Fields
from duralog.errors import DuralogError
from duralog.format.uuids import uuid_bytes

if "hypothesis" not in sys.modules:
    # kio imports hypothesis wherever it is installed, which takes longer than everything else that a start takes.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static._phantom")
    finally:
        del sys.modules["hypothesis"]

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64

_PLAIN_TYPES: Mapping[str, tuple[str, type]] = {
    "error_code": ("int16", i16),
    "timedelta_i32": ("int32", i32),
    "timedelta_i64": ("int64", i64),
    "datetime_i64": ("int64", i64),
}
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


class InvalidMessage(DuralogError):
    """The bytes of a request are not what its API and version demand."""


def optional(entity: object, name: str, default: Any = None) -> Any:
    """A field of a request that older versions do not have."""
    return getattr(entity, name, default)


def decode_request(api_key: int, version: int, body: bytes | memoryview) -> Any:
    """The body of a request as a value: kio's names, times in ms, error codes as integers, arrays as tuples."""
    return _decode(_request_twin(api_key, version), body)


def decode_response(api_key: int, version: int, body: bytes | memoryview) -> Any:
    return _decode(_response_twin(api_key, version), body)


def encode_response(api_key: int, version: int, fields: Fields) -> bytes:
    """The body of an answer. Names that this version lacks are dropped; a name that no version has is a mistake."""
    return _encode(_response_twin(api_key, version), fields)


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    return _encode(_request_twin(api_key, version), fields)


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether the version has compact lengths and tagged fields."""
    return load_request_schema(api_key, version).__flexible__


# Twins of kio's classes


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    default: Any
    nested: _Twin | None
    is_array: bool
    is_nullable: bool
    is_id: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Twin:
    """A class like one of kio's, and what is needed to make values of it and to check those that were read."""

    make: Callable[..., Any]
    read: Callable[[bytes | memoryview, int], tuple[Any, int]]
    write: Callable[[Any, Any], None]
    fields: Mapping[str, _Field]
    """By name. A time can also be given under Kafka's name, which ends with `_ms`."""
    arrays: tuple[tuple[str, bool, _Twin | None], ...]
    """The arrays to look at after reading: whether they may be null, and whether their elements have such arrays."""


@cache
def _request_twin(api_key: int, version: int) -> _Twin:
    return _twin_of(load_request_schema(api_key, version))


@cache
def _response_twin(api_key: int, version: int) -> _Twin:
    return _twin_of(load_response_schema(api_key, version))


@cache
def _twin_of(schema: Any) -> _Twin:
    declared: list[tuple[str, Any, Any]] = []
    fields: dict[str, _Field] = {}
    arrays: list[tuple[str, bool, _Twin | None]] = []
    for field in dataclasses.fields(schema):
        element, is_array, is_nullable = _element_type(field.type)
        kafka_type = field.metadata.get("kafka_type", "")
        annotation: Any = field.type
        default: Any = field.default
        nested: _Twin | None = None
        if kafka_type in _PLAIN_TYPES:
            kind, annotation = _PLAIN_TYPES[kafka_type]
            metadata = {**field.metadata, "kafka_type": kind}
            default = _plain(default)
        else:
            metadata = {**field.metadata}
            if dataclasses.is_dataclass(element):
                nested = _twin_of(typing.cast(type, element))
                annotation = types.GenericAlias(tuple, (nested.make, ...)) if is_array else nested.make
                annotation = annotation | None if is_nullable else annotation
                if dataclasses.is_dataclass(default):
                    default = dataclasses.MISSING
            elif kafka_type == "uuid" and not is_array:
                default = None
        own = {} if default is dataclasses.MISSING else {"default": default}
        declared.append((field.name, annotation, dataclasses.field(metadata=metadata, **own)))
        fields[field.name] = _Field(
            name=field.name,
            default=default if own else _implicit_default(element, kafka_type, nested, is_array=is_array),
            nested=nested,
            is_array=is_array,
            is_nullable=is_nullable,
            is_id=kafka_type == "uuid",
        )
        if kafka_type in _TIMES:
            fields[f"{field.name}_ms"] = fields[field.name]
        if is_array and (not is_nullable or (nested and nested.arrays)):
            arrays.append((field.name, is_nullable, nested if nested and nested.arrays else None))
    shared = ("__module__", "__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    make: Any = dataclasses.make_dataclass(
        schema.__name__,
        declared,
        namespace={name: getattr(schema, name) for name in shared},
        kw_only=True,
        slots=True,
    )
    return _Twin(make=make, read=entity_reader(make), write=entity_writer(make), fields=fields, arrays=tuple(arrays))


def _element_type(annotation: Any) -> tuple[Any, bool, bool]:
    """A field's type without `None` and without the array around it; whether it is an array; whether it may be null."""
    is_nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not types.NoneType]
        is_nullable = len(kinds) < len(typing.get_args(annotation))
        annotation = kinds[0]
    if typing.get_origin(annotation) is tuple:
        return _element_type(typing.get_args(annotation)[0])[0], True, is_nullable
    return annotation, False, is_nullable


def _plain(default: Any) -> Any:
    """The default of a time or an error code as an integer."""
    if default is None:
        return -1
    if isinstance(default, datetime.timedelta):
        return default // datetime.timedelta(milliseconds=1)
    return default if default is dataclasses.MISSING else int(default)


def _implicit_default(element: Any, kafka_type: str, nested: _Twin | None, *, is_array: bool) -> Any:
    """What Kafka takes for a field whose schema has no default."""
    if is_array:
        return ()
    if nested is not None:
        return {}
    if kafka_type in ("bytes", "records"):
        return b""
    if kafka_type == "string":
        return ""
    return False if element is bool else 0


# Values


def _decode(twin: _Twin, body: bytes | memoryview) -> Any:
    try:
        value, _ = twin.read(body, 0)
    except Exception as error:  # kio raises many kinds, among them KeyError and OverflowError.
        raise InvalidMessage(f"not a {twin.make.__name__}: {type(error).__name__}: {error}") from error
    _check_arrays(twin, value)
    return value


def _check_arrays(twin: _Twin, value: Any) -> None:
    """Where kio lets null pass for an array that must not be null."""
    for name, is_nullable, nested in twin.arrays:
        array = getattr(value, name)
        if array is None:
            if not is_nullable:
                raise InvalidMessage(f"{name} of a {twin.make.__name__} must not be null")
        elif nested is not None:
            for element in array:
                _check_arrays(nested, element)


def _encode(twin: _Twin, fields: Fields) -> bytes:
    buffer = io.BytesIO()
    twin.write(buffer, _make(twin, fields))
    return buffer.getvalue()


def _make(twin: _Twin, fields: Fields) -> Any:
    values = {field.name: field.default for field in twin.fields.values()}
    for name, value in fields.items():
        field = twin.fields.get(name)
        if field is None:
            _check_name(twin.make, name)
        elif field.is_array:
            values[field.name] = None if value is None else _elements(field, value)
        elif field.is_id and isinstance(value, str):
            values[field.name] = UUID(bytes=uuid_bytes(value))
        else:
            values[field.name] = value
    for field in twin.fields.values():
        if field.nested is not None and not field.is_array:
            given = values[field.name]
            if given is not None:
                values[field.name] = _make(field.nested, given)
    return twin.make(**values)


def _elements(field: _Field, values: Iterable[Any]) -> tuple[Any, ...]:
    if field.nested is None:
        if field.is_id:
            return tuple(UUID(bytes=uuid_bytes(value)) if isinstance(value, str) else value for value in values)
        return tuple(values)
    nested = field.nested
    return tuple(_make(nested, value) for value in values)


@cache
def _check_name(make: Any, name: str) -> None:
    """A name that this version lacks is an ordinary thing; one that no version has is a mistake."""
    load = load_request_schema if make.__module__.endswith(".request") else load_response_schema
    for version in sorted(schema_name_map[api_key_map[make.__api_key__]], reverse=True):
        module = sys.modules[load(make.__api_key__, version).__module__]
        for schema in vars(module).values():
            if dataclasses.is_dataclass(schema):
                for field in dataclasses.fields(schema):
                    if name in (field.name, f"{field.name}_ms"):
                        return
    raise KeyError(f"no version of {make.__name__} has a field {name}")
