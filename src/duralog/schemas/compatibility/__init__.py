"""Whether one schema can read what another wrote, by the rules of its type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from duralog.errors import SchemaError
from duralog.schemas.compatibility.work import Work
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType

_MOST_KEPT = 256
"""A Protobuf schema takes half a second to compile, and a new version is compared with those before it."""
_LARGEST_KEPT = 64 << 10
"""Characters, with the references: what clients send must not fill the memory."""


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A schema that is valid."""

    type: SchemaType
    text: str
    """Without what has no meaning: white space, and for Avro and JSON the order of attributes."""
    content: Any
    """By its type: an `AvroSchema`, a `JsonSchema` or a `FileDescriptorProto`."""


def parse(schema: RegisteredSchema, references: Mapping[str, RegisteredSchema]) -> ParsedSchema:
    """Check a schema with those that it refers to; raises `SchemaError`."""
    texts = tuple((name, one.text) for name, one in references.items())
    size = len(schema.text) + sum(len(text) for _, text in texts)
    try:
        return _kept(schema, texts) if size <= _LARGEST_KEPT else _parse(schema, texts)
    except RecursionError:
        raise SchemaError("its types or references are nested too deeply") from None


def _parse(schema: RegisteredSchema, references: tuple[tuple[str, str], ...]) -> ParsedSchema:
    texts = dict(references)
    content: Any
    if schema.type is SchemaType.AVRO:
        from duralog.schemas.avro.parsing import parse_schema

        content = parse_schema(schema.text, texts)
    elif schema.type is SchemaType.JSON:
        from duralog.schemas.compatibility.json_schema import JsonSchema

        content = JsonSchema(schema.text, texts)
    else:
        from duralog.schemas.compatibility.protobuf import parse_protobuf

        content = parse_protobuf(schema.text, texts)
    return ParsedSchema(schema.type, _without_blanks(schema), content)


_kept = lru_cache(_MOST_KEPT)(_parse)


def problems(reader: ParsedSchema, writer: ParsedSchema, work: Work | None = None) -> list[str]:
    """Why the reader cannot read all that the writer may write. Empty if it can.

    Raises `SchemaError` if that takes more than is left of `work`, which several comparisons may share.
    """
    try:
        return _problems(reader, writer, work or Work())
    except RecursionError:
        raise SchemaError("the types are nested too deeply to compare") from None


def _problems(reader: ParsedSchema, writer: ParsedSchema, work: Work) -> list[str]:
    if reader.type is not writer.type:
        return [f"the type of the schema changed from {writer.type} to {reader.type}"]
    if reader.type is SchemaType.AVRO:
        from duralog.schemas.compatibility.avro import avro_problems

        return avro_problems(reader.content, writer.content, work)
    if reader.type is SchemaType.JSON:
        from duralog.schemas.compatibility.json_schema import json_schema_problems

        return json_schema_problems(reader.content, writer.content, work)
    from duralog.schemas.compatibility.protobuf import protobuf_problems

    return protobuf_problems(reader.content, writer.content)


def _without_blanks(schema: RegisteredSchema) -> str:
    if schema.type is SchemaType.PROTOBUF:
        return "\n".join(line.strip() for line in schema.text.splitlines() if line.strip())
    try:
        return json.dumps(json.loads(schema.text), separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    except ValueError:
        # A name alone is an Avro schema, too, without its quotation marks.
        return schema.text.strip()
