"""The fields of a schema as a flat list of paths and declarations, so that two versions can be compared by name.

| type | a path | what is declared |
|---|---|---|
| Avro | `customer.name`, `items[].price` | `string`, `null or long, default null` |
| JSON Schema | `customer.name`, `items[].price` | `string, required` |
| Protobuf | `Order.items` | `3: repeated Item` |

A named type is followed once on each path. Schemas are not validated here: unknown parts are left out, and the texts
are compared as well. Memory and depth are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from duralog.schemas.registered_schema import SchemaType

MOST_FIELDS = 5_000
_DEEPEST = 30
Fields = dict[str, str]
"""By path, in the order of the schema."""


def fields_of(type_: SchemaType, text: str, descriptor: Any = None) -> Fields:
    """`descriptor` is the `FileDescriptorProto` of a Protobuf schema."""
    if type_ is SchemaType.PROTOBUF:
        found = iter(()) if descriptor is None else _protobuf_file(descriptor)
    else:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        found = _avro(document, "", "", {}, 0) if type_ is SchemaType.AVRO else _json(document, "", document, 0)
    fields: Fields = {}
    for path, declared in found:
        fields.setdefault(path, declared)
        if len(fields) >= MOST_FIELDS:
            break
    return fields


# Avro


def _avro(schema: Any, path: str, space: str, named: dict[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """The fields below a schema. `named` are the types that were declared before."""
    if depth > _DEEPEST:
        return
    if isinstance(schema, list):
        for each in schema:
            yield from _avro(each, path, space, named, depth + 1)
        return
    if isinstance(schema, str):
        known = named.get(schema if "." in schema or not space else f"{space}.{schema}")
        if known is not None and depth < _DEEPEST // 2:
            yield from _avro_record(known, path, space, {}, depth)
        return
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind == "array":
        yield from _avro(schema.get("items"), f"{path}[]", space, named, depth + 1)
    elif kind == "map":
        yield from _avro(schema.get("values"), f"{path}{{}}", space, named, depth + 1)
    elif kind in ("record", "error"):
        space = str(schema.get("namespace") or space)
        named[f"{space}.{schema.get('name')}" if space else str(schema.get("name"))] = schema
        yield from _avro_record(schema, path, space, named, depth)
    elif isinstance(kind, dict | list):
        yield from _avro(kind, path, space, named, depth + 1)


def _avro_record(
    schema: Mapping[str, Any], path: str, space: str, named: dict[str, Any], depth: int
) -> Iterator[tuple[str, str]]:
    fields = schema.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if not isinstance(field, dict):
            continue
        place = f"{path}.{field.get('name')}" if path else str(field.get("name"))
        declared = _avro_type(field.get("type"))
        if "default" in field:
            declared += f", default {_short(field['default'])}"
        yield place, declared
        yield from _avro(field.get("type"), place, space, named, depth + 1)


def _avro_type(schema: Any, depth: int = 0) -> str:
    if depth > _DEEPEST:
        return "…"
    if isinstance(schema, list):
        return " or ".join(_avro_type(each, depth + 1) for each in schema)
    if not isinstance(schema, dict):
        return str(schema)
    kind = schema.get("type")
    if kind == "array":
        return f"array of {_avro_type(schema.get('items'), depth + 1)}"
    if kind == "map":
        return f"map of {_avro_type(schema.get('values'), depth + 1)}"
    if kind == "enum":
        symbols = schema.get("symbols")
        return f"enum {schema.get('name')} ({', '.join(map(str, symbols)) if isinstance(symbols, list) else ''})"
    if kind in ("record", "error", "fixed"):
        size = f" of {schema.get('size')} bytes" if kind == "fixed" else ""
        return f"{kind} {schema.get('name')}{size}{_logical(schema)}"
    return f"{_avro_type(kind, depth + 1)}{_logical(schema)}"


def _logical(schema: Mapping[str, Any]) -> str:
    name = schema.get("logicalType")
    if name is None:
        return ""
    if name == "decimal":
        return f" (decimal of {schema.get('precision')} digits, scale {schema.get('scale', 0)})"
    return f" ({name})"


# JSON Schema


def _json(schema: Any, path: str, root: Any, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST or not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and depth < _DEEPEST // 3:
        yield from _json(_referred(root, reference), path, root, depth + 1)
    required = schema.get("required")
    names = set(map(str, required)) if isinstance(required, list) else set()
    properties = schema.get("properties")
    for name, declared in properties.items() if isinstance(properties, dict) else ():
        place = f"{path}.{name}" if path else str(name)
        yield place, _json_type(declared) + (", required" if name in names else "")
        yield from _json(declared, place, root, depth + 1)
    yield from _json(schema.get("items"), f"{path}[]", root, depth + 1)
    for word in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(word)
        for part in parts if isinstance(parts, list) else ():
            yield from _json(part, path, root, depth + 1)


def _json_type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "nothing" if schema is False else "anything"
    kind = schema.get("type")
    words = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind) if kind is not None else ""
    if "$ref" in schema:
        words = str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        words = f"{words} one of {_short(values)}".strip()
    limits = [
        f"{name} {_short(schema[name])}"
        for name in ("format", "pattern", "minimum", "maximum", "minLength", "maxLength", "default")
        if name in schema
    ]
    return ", ".join([words or "anything", *limits])


def _referred(root: Any, reference: str) -> Any:
    """Of `#/definitions/Name`; references to other documents are not followed."""
    if not reference.startswith("#/"):
        return None
    found = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


# Protobuf


def _protobuf_file(file: Any) -> Iterator[tuple[str, str]]:
    for message in file.message_type:
        yield from _message(message, message.name)
    for enum in file.enum_type:
        yield from ((f"{enum.name}.{value.name}", str(value.number)) for value in enum.value)


def _message(message: Any, path: str) -> Iterator[tuple[str, str]]:
    groups = [group.name for group in message.oneof_decl]
    for field in message.field:
        group = ""
        if field.HasField("oneof_index") and not field.proto3_optional:
            group = f", one of {groups[field.oneof_index]}"
        yield f"{path}.{field.name}", f"{field.number}: {_protobuf_type(field)}{group}"
    for nested in message.nested_type:
        yield from _message(nested, f"{path}.{nested.name}")
    for enum in message.enum_type:
        yield from ((f"{path}.{enum.name}.{value.name}", str(value.number)) for value in enum.value)


def _protobuf_type(field: Any) -> str:
    """Of a `FieldDescriptorProto`. Its own descriptor names the types: no import is needed."""
    name = field.type_name.lstrip(".")
    if not name:
        name = field.DESCRIPTOR.enum_types_by_name["Type"].values_by_number[field.type].name
        name = name.removeprefix("TYPE_").lower()
    label = field.DESCRIPTOR.enum_types_by_name["Label"].values_by_number[field.label].name
    optional = "optional " if field.proto3_optional else ""
    words = {"LABEL_REPEATED": "repeated ", "LABEL_REQUIRED": "required "}
    return f"{words.get(label, optional)}{name}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
