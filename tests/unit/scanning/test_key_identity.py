"""What a sample of keys shows of their schemas: only then are keys compared without the schema's id."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from duralog.scanning.key_identity import KeyIdentity, identity_of
from duralog.schemas import RegisteredSchema, SchemaCatalogue, SchemaType, SubjectVersion
from tests.support.typed_log import avro

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
OTHER = {**KEY, "doc": "another"}


def catalogue(*schemas: Any, context: str = "", type_: SchemaType = SchemaType.AVRO) -> SchemaCatalogue:
    """With the ids 1, 2, ..."""
    found = [
        SubjectVersion(
            subject=f"{context}t{number}-key",
            version=1,
            schema=RegisteredSchema(type=type_, text=json.dumps(schema), id=number, context=context[1:-1] or "."),
        )
        for number, schema in enumerate(schemas, 1)
    ]
    return SchemaCatalogue(found)


def keys(*numbers: int, schema: int = 1) -> list[bytes]:
    return [avro(KEY, {"id": number}, schema) for number in numbers]


@pytest.mark.parametrize("context", ["", ":.shop:"])
def test_keys_with_schema_ids(context: str) -> None:
    sample = [*keys(1, 2), *keys(1, schema=2)]
    known = catalogue(KEY, OTHER, context=context)
    assert identity_of(pa.array(sample), known) is KeyIdentity.CONFLUENT
    assert identity_of(pa.array([*sample, None, *keys(1, schema=3)]), known) is KeyIdentity.BYTES
    assert identity_of(pa.array([*sample, b"\0\0\0\0\1\xff"]), known) is KeyIdentity.BYTES
    assert identity_of(pa.array([None, None], pa.binary()), known) is KeyIdentity.BYTES


def test_keys_in_protobuf() -> None:
    text = 'syntax = "proto3"; message Key { int64 id = 1; }'
    schema = RegisteredSchema(type=SchemaType.PROTOBUF, text=text, id=1)
    known = SchemaCatalogue([SubjectVersion(subject="t-key", version=1, schema=schema)])
    assert identity_of(pa.array([b"\0\0\0\0\1" + b"\0" + b"\x08\x07"]), known) is KeyIdentity.CONFLUENT
    assert identity_of(pa.array([b"\0\0\0\0\1" + b"\0" + b"\x08"]), known) is KeyIdentity.BYTES


def test_long_keys_that_look_like_schema_ids() -> None:
    """Of 2**24 to 2**25, the first five bytes are as those of id 1: cut off, 2**24 + 7 would be 2**25 + 7."""
    sample = [number.to_bytes(8, "big") for number in range(2**24, 2**24 + 1000)]
    assert identity_of(pa.array(sample), catalogue(KEY)) is KeyIdentity.BYTES
    assert identity_of(pa.array(sample), catalogue({"type": "integer"}, type_=SchemaType.JSON)) is KeyIdentity.BYTES


def test_keys_with_the_schema_in_json() -> None:
    sample = [json.dumps({"schema": None, "payload": 1}, separators=(",", ":")).encode()]
    assert identity_of(pa.array(sample), SchemaCatalogue()) is KeyIdentity.CONNECT_JSON
    assert identity_of(pa.array([*sample, b"{}"]), SchemaCatalogue()) is KeyIdentity.BYTES
