"""Column types for JSON: from a JSON Schema, or from a sample of payloads.

Where JSON may hold anything (several types, a schema that contains itself, no type at all), the column is text: the
JSON of the value; of a field without a value in the sample, strings are as they are. Such fields, and bytes in base64,
are marked in the field's metadata, since their type does not show it. All fields are nullable: a property that is
missing is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urldefrag, urljoin

import pyarrow as pa

from duralog.errors import SchemaError

ENCODING = b"duralog.json"
"""The metadata's key. Its values:"""
AS_TEXT = b"text"
AS_LOOSE_TEXT = b"loose text"
"""A string as it is, anything else as its JSON: of a field whose sample has no value."""
AS_BASE64 = b"base64"
AS_PAIRS = b"pairs"
"""A map whose keys are not strings, as an array of keys and values."""
AS_FLOAT_TEXT = b"float text"
"""A number, or the text NaN, Infinity or -Infinity."""

EXPECTED = b"duralog.expected"
"""Metadata of a field that no value of a record fits: what the column has, for the reason."""

MAX_FIELDS = 20_000
MAX_DEPTH = 100
MAX_SAMPLE = 10_000
"""Payloads that a type is inferred from, at most."""

_TEXT = {ENCODING: AS_TEXT}


def json_schema_type(text: str, references: Mapping[str, str]) -> pa.Field:
    """The column of a JSON Schema, whose `$ref`s lead into itself or to the given texts; raises `SchemaError`."""
    documents = {name: _document(each, f"reference {name!r}") for name, each in references.items()}
    root = _document(text, "the JSON Schema")
    return _FromSchema(root, documents).field("value", root, "", ())


def infer_type(values: Iterable[object]) -> pa.Field:
    """The column that all of these values fit into. Numbers widen; other contradictions are text."""
    found: object = _NOTHING
    for number, value in enumerate(values):
        if number >= MAX_SAMPLE:
            break
        found = _merged(found, _shape(value, 0))
    return _shape_field("value", found, [0])


def _document(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{name} is not JSON: {error}") from None


def check_name(name: str, source: str) -> None:
    if not is_text(name):
        raise SchemaError(f"the {source} has a field whose name is not Unicode text: {name[:100]!r}")


def text_field(name: str) -> pa.Field:
    """A field that holds the JSON of any value."""
    return pa.field(name, pa.string(), metadata=_TEXT)


class _FromSchema:
    def __init__(self, root: object, documents: Mapping[str, object]) -> None:
        self._root = root
        self._base = str(root.get("$id") or root.get("id") or "") if isinstance(root, dict) else ""
        self._documents = documents
        self._count = 0

    def field(self, name: str, schema: object, base: str, inside: tuple[int, ...]) -> pa.Field:
        self._count += 1
        check_name(name, "JSON Schema")
        if self._count > MAX_FIELDS:
            raise SchemaError(f"the JSON Schema has more than {MAX_FIELDS:,} fields, nested ones too")
        followed = 0
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            followed += 1
            if followed > MAX_DEPTH:
                raise SchemaError(f"the JSON Schema has a $ref that leads to itself: {schema['$ref'][:200]!r}")
            schema, base = self._target(schema["$ref"], base)
        if not isinstance(schema, dict) or id(schema) in inside or len(inside) >= MAX_DEPTH:
            return text_field(name)
        inside = (*inside, id(schema))
        schema = self._combined(schema, base)
        if schema is None:
            return text_field(name)
        choices = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(choices, list):
            # Null or something is that something, since all fields are nullable.
            others = [each for each in choices if not (isinstance(each, dict) and each.get("type") == "null")]
            return self.field(name, others[0], base, inside) if len(others) == 1 else text_field(name)
        return self._typed(name, schema, base, inside)

    def _typed(self, name: str, schema: dict[str, Any], base: str, inside: tuple[int, ...]) -> pa.Field:
        kind = _kind(schema)
        simple = {"string": pa.string(), "boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}
        if kind in simple:
            return pa.field(name, simple[kind])
        if kind == "null":
            return pa.field(name, pa.null())
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, dict):
                return pa.field(name, pa.list_(text_field("item")))
            return pa.field(name, pa.list_(self.field("item", items, base, inside)))
        if kind == "object":
            properties = schema.get("properties")
            if isinstance(properties, dict) and properties:
                return pa.field(
                    name, pa.struct([self.field(str(key), each, base, inside) for key, each in properties.items()])
                )
            extra = schema.get("additionalProperties")
            if isinstance(extra, dict) and extra:
                value = self.field("value", extra, base, inside)
                return pa.field(name, pa.map_(pa.field("key", pa.string(), nullable=False), value))
        return text_field(name)

    def _combined(self, schema: dict[str, Any], base: str) -> dict[str, Any] | None:
        """The schema with the properties of its `allOf`; None if those cannot be distinguished."""
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema
        combined = {key: value for key, value in schema.items() if key != "allOf"}
        stated = combined.get("properties")
        properties = dict(stated) if isinstance(stated, dict) else {}
        for part in parts[:MAX_DEPTH]:
            followed = 0
            while isinstance(part, dict) and isinstance(part.get("$ref"), str) and followed < MAX_DEPTH:
                part, _ = self._target(part["$ref"], base)
                followed += 1
            if not isinstance(part, dict) or "allOf" in part or "oneOf" in part or "anyOf" in part:
                return None
            own = part.get("properties")
            properties.update(own if isinstance(own, dict) else {})
            combined = {**part, **combined}
        if properties:
            combined["properties"] = properties
        return combined

    def _target(self, reference: str, base: str) -> tuple[object, str]:
        """What a `$ref` leads to, and the document that this is in."""
        name, fragment = urldefrag(reference)
        if name and name != self._base:
            document = self._documents.get(name, self._documents.get(urljoin(base or self._base, name)))
            if document is None:
                raise SchemaError(f"the JSON Schema refers to {name[:200]!r}, which is not among its references")
            base = name
        else:
            document = self._documents.get(base, self._root)
        for step in fragment.split("/")[1:] if fragment.startswith("/") else ():
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(document, list) and step.isdecimal() and int(step) < len(document):
                document = document[int(step)]
            elif isinstance(document, dict) and step in document:
                document = document[step]
            else:
                raise SchemaError(f"the JSON Schema refers to {reference[:200]!r}, which does not exist")
        if fragment and not fragment.startswith("/"):
            raise SchemaError(f"the JSON Schema refers to {reference[:200]!r}: anchors are not supported")
        return document, base


def _kind(schema: dict[str, Any]) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if isinstance(each, str) and each != "null"]
        if set(others) == {"integer", "number"}:
            return "number"
        kind = others[0] if len(others) == 1 else None
    if kind is None and isinstance(schema.get("type"), list):
        return None
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values:
        kinds = {type(each) for each in values if each is not None}
        if len(kinds) == 1:
            return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(kinds.pop())
    return None


# Inference. A shape is a type of Python, a list's shape in a tuple, a dict of shapes, or one of these:
_NOTHING = "nothing"
_ANYTHING = "anything"
_LONG = "long"
"""A whole number that would be another one as a double."""


def _shape(value: object, depth: int) -> object:
    if value is None:
        return _NOTHING
    if depth > MAX_DEPTH:
        return _ANYTHING
    if isinstance(value, dict):
        # No column can have half a surrogate pair in its name: such a field is left out.
        return {key: _shape(each, depth + 1) for key, each in value.items() if is_text(key)}
    if isinstance(value, list):
        found: object = _NOTHING
        for each in value:
            found = _merged(found, _shape(each, depth + 1))
        return (found,)
    if type(value) is int and not -(2**53) <= value <= 2**53:
        # Longer numbers that a double does not have are numbers as long as they fit into a long, else text.
        if not is_double(value):
            return _LONG if -(2**63) <= value < 2**63 else _ANYTHING
        return int if -(2**63) <= value < 2**63 else float
    return type(value)


def is_text(value: str) -> bool:
    """Whether it is Unicode text: JSON may hold halves of surrogate pairs."""
    return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)


def is_double(number: int) -> bool:
    """Whether a double stands for just this number, in the shortest digits that it is written with."""
    try:
        return Decimal(repr(float(number))) == number
    except OverflowError:
        return False


def _merged(one: object, other: object) -> object:
    if one == other or other == _NOTHING:
        return one
    if one == _NOTHING:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _merged(one.get(key, _NOTHING), other.get(key, _NOTHING)) for key in {**one, **other}}
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (_merged(one[0], other[0]),)
    if one in (int, _LONG) and other in (int, _LONG):
        return _LONG
    if one in (int, float) and other in (int, float):
        return float
    return _ANYTHING


def _shape_field(name: str, shape: object, count: list[int]) -> pa.Field:
    count[0] += 1
    if count[0] > MAX_FIELDS:
        raise SchemaError(f"the sample has more than {MAX_FIELDS:,} fields, nested ones too; give a JSON Schema")
    if isinstance(shape, dict) and shape:
        return pa.field(name, pa.struct([_shape_field(key, each, count) for key, each in shape.items()]))
    if isinstance(shape, tuple):
        return pa.field(name, pa.list_(_shape_field("item", shape[0], count)))
    simple = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), _LONG: pa.int64(), float: pa.float64()}
    if isinstance(shape, type | str) and shape in simple:
        return pa.field(name, simple[shape])
    if shape == _NOTHING:
        return pa.field(name, pa.string(), metadata={ENCODING: AS_LOOSE_TEXT})
    # An empty object, or contradictions: the JSON is kept.
    return text_field(name)
