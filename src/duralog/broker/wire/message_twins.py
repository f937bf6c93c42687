"""Twins of kio's message classes, in which times and error codes are plain integers.

`kio` reads times as datetimes, which loses some and refuses others, and error codes as an enumeration, which refuses
those that it does not know. For each of its classes a twin is made that differs in nothing but that. kio's own writer
works on the twin; the reader is `message_reading`. Twins are made when a version of an API is first used.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

if "hypothesis" not in sys.modules:
    # kio imports hypothesis wherever it is installed, which takes longer than everything else that a start takes.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static._phantom")
    finally:
        del sys.modules["hypothesis"]

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i64

from duralog.broker.wire.message_reading import Read, Shape, reader_of

_PLAIN_TYPES: Mapping[str, tuple[str, type]] = {
    "error_code": ("int16", i16),
    "timedelta_i32": ("int32", i32),
    "timedelta_i64": ("int64", i64),
    "datetime_i64": ("int64", i64),
}
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    name: str
    default: Any
    nested: Twin | None
    is_array: bool
    kind: str
    """How it is written, by kio's names; empty for nested classes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Twin:
    """A class like one of kio's, and what is needed to make, read and write values of it."""

    make: Callable[..., Any]
    """From the values of its fields, in order or by name."""
    read: Read
    write: Callable[[Any, Any], None]
    fields: Mapping[str, Field]
    """By name. A time can also be given under Kafka's name, which ends with `_ms`."""


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether the version has compact lengths and tagged fields."""
    return load_request_schema(api_key, version).__flexible__


@cache
def request_twin(api_key: int, version: int) -> Twin:
    return _twin_of(load_request_schema(api_key, version))


@cache
def response_twin(api_key: int, version: int) -> Twin:
    return _twin_of(load_response_schema(api_key, version))


@cache
def _twin_of(schema: Any) -> Twin:
    declared: list[tuple[str, Any, Any]] = []
    fields: dict[str, Field] = {}
    shapes: list[Shape] = []
    for field in dataclasses.fields(schema):
        element, is_array, is_nullable = _element_type(field.type)
        kafka_type = field.metadata.get("kafka_type", "")
        annotation: Any = field.type
        default: Any = field.default
        nested: Twin | None = None
        kind = kafka_type
        if kafka_type in _PLAIN_TYPES:
            kind, annotation = _PLAIN_TYPES[kafka_type]
            default = _plain(default)
        elif dataclasses.is_dataclass(element):
            nested = _twin_of(typing.cast(type, element))
            annotation = types.GenericAlias(tuple, (nested.make, ...)) if is_array else nested.make
            annotation = annotation | None if is_nullable else annotation
            if dataclasses.is_dataclass(default):
                default = dataclasses.MISSING
        elif kafka_type == "uuid" and not is_array:
            default = None
        if default is dataclasses.MISSING:
            default = _implicit_default(element, kafka_type, nested, is_array=is_array)
        metadata = {**field.metadata, "kafka_type": kind} if kind else {**field.metadata}
        declared.append((field.name, annotation, dataclasses.field(metadata=metadata, default=default)))
        fields[field.name] = Field(name=field.name, default=default, nested=nested, is_array=is_array, kind=kind)
        if kafka_type in _TIMES:
            fields[f"{field.name}_ms"] = fields[field.name]
        shapes.append(
            Shape(
                kind,
                tag=field.metadata.get("tag"),
                is_array=is_array,
                is_nullable=is_nullable,
                read_nested=None if nested is None else nested.read,
            )
        )
    shared = ("__module__", "__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    make: Any = dataclasses.make_dataclass(
        schema.__name__,
        declared,
        namespace={name: getattr(schema, name) for name in shared},
        slots=True,
        # Not frozen, which costs time for every value; they are never changed. A default must be hashable.
        unsafe_hash=True,
    )
    defaults = [field.default for field in dataclasses.fields(make)]
    return Twin(
        make=make,
        read=reader_of(make, shapes, defaults, flexible=schema.__flexible__),
        write=entity_writer(make),
        fields=fields,
    )


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


def _implicit_default(element: Any, kafka_type: str, nested: Twin | None, *, is_array: bool) -> Any:
    """What Kafka takes for a field whose schema has no default."""
    if is_array:
        return ()
    if nested is not None:
        return nested.make()
    if kafka_type in ("bytes", "records"):
        return b""
    if kafka_type == "string":
        return ""
    return False if element is bool else 0


@cache
def check_name(make: Any, name: str) -> None:
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
