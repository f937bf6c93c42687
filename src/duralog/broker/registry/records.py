"""The keys and values of `_schemas`, as Confluent's registry and Karapace load them."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from duralog.schemas.registered_schema import RegisteredSchema, SubjectVersion


def schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def subject_key(keytype: str, subject: str | None) -> dict[str, Any]:
    return {"keytype": keytype, "subject": subject or None, "magic": 0}


def schema_guid(schema: RegisteredSchema) -> UUID:
    """The same for the same schema everywhere: it is made of the MD5 of its text and references."""
    digest = hashlib.md5(schema.text.encode(), usedforsecurity=False)
    for reference in schema.references:
        digest.update(f"{reference.name}\0{reference.subject}\0{reference.version}\0".encode())
    return UUID(bytes=digest.digest())


def schema_value(one: SubjectVersion) -> dict[str, Any]:
    schema = one.schema
    fields: dict[str, Any] = {"subject": one.subject, "version": one.version, "id": schema.id}
    if schema.guid is not None:
        fields["guid"] = str(schema.guid)
    if schema.type != "AVRO":
        fields["schemaType"] = str(schema.type)
    if schema.references:
        fields["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    return {**fields, "schema": schema.text, "deleted": one.deleted}
