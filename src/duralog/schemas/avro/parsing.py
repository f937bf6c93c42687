"""From the JSON of an Avro schema to its types. Schemas come from registries and files: everything is checked.

Names are resolved as Avro's specification has it: a name with dots is a full name, any other one belongs to the
namespace around it. A name that the text does not define is looked for in the references, as a schema registry has
them. Attributes that Avro does not know are ignored, and so are logical types that do not fit the type. Kafka Connect
writes the names of Debezium's types as `connect.name`: dates and times among them are taken for logical types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from duralog.errors import SchemaError
from duralog.schemas.avro.schema import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)

MAX_TEXT_CHARACTERS = 4 << 20
MAX_DEPTH = 64
MAX_FIXED_BYTES = 1 << 20
MAX_PRECISION = 76
"""Of a decimal: what Arrow's largest holds. A decimal of more digits is read as bytes."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_NO_REFERENCES: Mapping[str, str] = MappingProxyType({})

_LOGICAL_OF_PRIMITIVES = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        *(f"{prefix}timestamp-{unit}" for prefix in ("", "local-") for unit in ("millis", "micros", "nanos")),
    },
    "string": {"uuid"},
}

_LOGICAL_OF_DEBEZIUM = {
    # Its times are of a database's local time, and have no logical type.
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "time-millis",
    ("long", "io.debezium.time.MicroTime"): "time-micros",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "local-timestamp-nanos",
}


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema. It is pickled as its texts."""

    text: str
    references: Mapping[str, str] = field(hash=False)
    root: AvroType = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_schema, (self.text, dict(self.references))


def parse_schema(text: str, references: Mapping[str, str] = _NO_REFERENCES) -> AvroSchema:
    """The types of a schema. `references` are the texts of other schemas, by the name that this one refers to.

    Raises `SchemaError` if the text is not an Avro schema.
    """
    parser = _Parser(references)
    return AvroSchema(text, dict(references), parser.parse_text(text, "the schema"))


class _Parser:
    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = dict(references)
        """Those that are not parsed yet."""
        self._named: dict[str, Named] = {}

    def parse_text(self, text: str, what: str) -> AvroType:
        if len(text) > MAX_TEXT_CHARACTERS:
            raise SchemaError(f"{what} has {len(text):,} characters, more than {MAX_TEXT_CHARACTERS:,}")
        try:
            node = json.loads(text)
        except ValueError as error:
            # A bare name of a type is not JSON, and Avro's own parsers take it.
            if _is_full_name(text.strip()):
                return self._type(text.strip(), "", "", 0)
            raise SchemaError(f"{what} is not JSON: {error}") from error
        except RecursionError:
            raise SchemaError(f"{what} is nested deeper than {MAX_DEPTH} levels") from None
        return self._type(node, "", "", 0)

    def _type(self, node: Any, namespace: str, path: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise SchemaError(f"{_place(path)}: the schema is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, str):
            return Primitive(node) if node in PRIMITIVES else self._lookup(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path, depth)
        if not isinstance(node, dict):
            raise SchemaError(f"{_place(path)}: expected a type, found {_shown(node)}")
        kind = node.get("type")
        if isinstance(kind, dict | list):
            # {"type": {"type": ...}}: the inner one is the type.
            return self._type(kind, namespace, path, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError(f"{_place(path)}: a type has no attribute 'type', or not a name: {_shown(node)}")
        if kind in PRIMITIVES:
            return Primitive(kind, _logical(node, kind))
        if kind == "array":
            return Array(self._type(_attribute(node, "items", path), namespace, f"{path}[]", depth + 1))
        if kind == "map":
            return Map(self._type(_attribute(node, "values", path), namespace, f"{path}{{}}", depth + 1))
        if kind in ("record", "error"):
            return self._record(node, namespace, path, depth)
        if kind == "enum":
            return self._enum(node, namespace, path)
        if kind == "fixed":
            return self._fixed(node, namespace, path)
        return self._lookup(kind, namespace, path)

    def _lookup(self, name: str, namespace: str, path: str) -> AvroType:
        if not _is_full_name(name):
            raise SchemaError(f"{_place(path)}: {_shown(name)} is not the name of a type")
        candidates = (f"{namespace}.{name}", name) if namespace and "." not in name else (name,)
        while True:
            for candidate in candidates:
                if candidate in self._named:
                    return self._named[candidate]
            reference = next((one for one in candidates if one in self._references), None)
            if reference is None:
                # A registry's name for a reference is only a label.
                reference = next(iter(self._references), None)
            if reference is None:
                raise SchemaError(f"{_place(path)}: the type {name} is not defined, in the schema or its references")
            self.parse_text(self._references.pop(reference), f"the reference {reference}")

    def _union(self, node: list[Any], namespace: str, path: str, depth: int) -> Union:
        branches = tuple(self._type(one, namespace, path, depth + 1) for one in node)
        if not branches:
            raise SchemaError(f"{_place(path)}: a union has no branches")
        seen = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise SchemaError(f"{_place(path)}: a union is directly inside another union")
            key = branch.kind if isinstance(branch, Primitive) else getattr(branch, "name", type(branch).__name__)
            if key in seen:
                raise SchemaError(f"{_place(path)}: a union has two branches of the type {key.lower()}")
            seen.add(key)
        return Union(branches)

    def _record(self, node: dict[str, Any], namespace: str, path: str, depth: int) -> Record:
        name, inner, aliases = _names(node, namespace, path)
        record = self._define(Record(name, aliases), path)
        assert isinstance(record, Record)
        listed = _attribute(node, "fields", path)
        if not isinstance(listed, list):
            raise SchemaError(f"{_place(path)}: the fields of {name} are not a list")
        fields: dict[str, Field] = {}
        for one in listed:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not _NAME.match(one["name"]):
                raise SchemaError(f"{_place(path)}: a field of {name} has no valid name: {_shown(one)}")
            field_name = one["name"]
            if field_name in fields:
                raise SchemaError(f"{_place(path)}: {name} has two fields named {field_name}")
            field_path = f"{path}.{field_name}" if path else field_name
            # `"type": "string", "logicalType": ...` on the field itself is a common mistake, which Avro ignores.
            kind = self._type(_attribute(one, "type", field_path), inner, field_path, depth + 1)
            field_aliases = _strings(one, "aliases", field_path)
            fields[field_name] = Field(field_name, kind, frozenset(field_aliases), one.get("default", NO_DEFAULT))
        record.fields = tuple(fields.values())
        return record

    def _enum(self, node: dict[str, Any], namespace: str, path: str) -> AvroType:
        name, _, aliases = _names(node, namespace, path)
        symbols = _strings(node, "symbols", path)
        if not symbols:
            raise SchemaError(f"{_place(path)}: the enum {name} has no symbols")
        if len(set(symbols)) < len(symbols) or not all(_NAME.match(symbol) for symbol in symbols):
            raise SchemaError(f"{_place(path)}: the symbols of the enum {name} are not distinct, valid names")
        default = node.get("default")
        if default is not None and default not in symbols:
            raise SchemaError(f"{_place(path)}: the default {_shown(default)} is not a symbol of the enum {name}")
        return self._define(Enum(name, aliases, tuple(symbols), default), path)

    def _fixed(self, node: dict[str, Any], namespace: str, path: str) -> AvroType:
        name, _, aliases = _names(node, namespace, path)
        size = _attribute(node, "size", path)
        if not _is_number(size) or not 0 <= size <= MAX_FIXED_BYTES:
            raise SchemaError(f"{_place(path)}: the size of {name} is {_shown(size)}, not 0 to {MAX_FIXED_BYTES:,}")
        return self._define(Fixed(name, aliases, size, _logical(node, "fixed", size)), path)

    def _define(self, one: Named, path: str) -> Named:
        if one.name in self._named:
            raise SchemaError(f"{_place(path)}: the type {one.name} is defined twice")
        self._named[one.name] = one
        return one


def _names(node: dict[str, Any], namespace: str, path: str) -> tuple[str, str, frozenset[str]]:
    """Full name, namespace of what is inside, full names of the aliases."""
    name = _attribute(node, "name", path)
    space = node.get("namespace", namespace)
    if not isinstance(name, str) or not _is_full_name(name) or name.rpartition(".")[2] in PRIMITIVES:
        raise SchemaError(f"{_place(path)}: {_shown(name)} is not a valid name for a type")
    if not isinstance(space, str) or not (space == "" or _is_full_name(space)):
        raise SchemaError(f"{_place(path)}: {_shown(space)} is not a valid namespace")
    full = name if "." in name or not space else f"{space}.{name}"
    inner = full.rpartition(".")[0]
    aliases = _strings(node, "aliases", path)
    if len(aliases) * len(inner) > MAX_TEXT_CHARACTERS:
        # Each has the namespace in front of it.
        raise SchemaError(f"{_place(path)}: the type {name} has {len(aliases):,} aliases in a long namespace")
    return full, inner, frozenset(one if "." in one or not inner else f"{inner}.{one}" for one in aliases)


def _logical(node: dict[str, Any], kind: str, size: int = 0) -> Logical | None:
    name = node.get("logicalType", _LOGICAL_OF_DEBEZIUM.get((kind, str(node.get("connect.name")))))
    if not isinstance(name, str):
        return None
    if name in _LOGICAL_OF_PRIMITIVES.get(kind, ()):
        return Logical(name)
    if kind == "fixed" and (name, size) in (("duration", 12), ("uuid", 16)):
        return Logical(name)
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision: Any = node.get("precision")
        scale: Any = node.get("scale", 0)
        most = MAX_PRECISION if kind == "bytes" else min(MAX_PRECISION, _digits(size))
        if _is_number(precision) and _is_number(scale) and 0 < precision <= most and 0 <= scale <= precision:
            return Logical(name, precision, scale)
    return None


def _digits(size: int) -> int:
    """How many decimal digits always fit into a signed number of this many bytes."""
    return len(str(2 ** (8 * min(size, 64) - 1) - 1)) - 1 if size > 0 else 0


def _strings(node: dict[str, Any], name: str, path: str) -> list[str]:
    found = node.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise SchemaError(f"{_place(path)}: the attribute {name!r} is not a list of strings: {_shown(found)}")
    return found


def _attribute(node: dict[str, Any], name: str, path: str) -> Any:
    if name not in node:
        raise SchemaError(f"{_place(path)}: the attribute {name!r} is missing in {_shown(node)}")
    return node[name]


def _is_full_name(text: str) -> bool:
    return len(text) <= 1024 and all(_NAME.match(part) for part in text.split("."))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _place(path: str) -> str:
    return f"field {path}" if path else "the schema"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
