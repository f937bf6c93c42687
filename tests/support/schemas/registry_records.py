"""Records as registries write them to `_schemas`, in the forms of Confluent's registry and of Karapace."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from duralog.schemas import RegisteredSchema, SchemaCatalogue, SchemaReference, SchemaType, SubjectVersion

Record = tuple[bytes | None, bytes | None]


def record(key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    return _compact(key), None if value is None else _compact(value)


def schema_record(subject: str, version: int, id_: int, schema: object, **more: Any) -> Record:
    """Of Confluent's registry: the key in its order of properties, the value with its defaults."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    value = {
        "subject": subject,
        "version": version,
        "id": id_,
        **more,
        "schema": text,
        "deleted": more.get("deleted", False),
    }
    return record({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}, value)


def karapace_record(subject: str, version: int, id_: int, schema: object, *, deleted: bool = False) -> Record:
    """Of Karapace: other orders of properties, and blanks."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    key = {"subject": subject, "version": version, "magic": 1, "keytype": "SCHEMA"}
    value = {"subject": subject, "version": version, "id": id_, "schema": text, "deleted": deleted}
    return json.dumps(key).encode(), json.dumps(value).encode()


def tombstone(subject: str, version: int) -> Record:
    return record({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}, None)


def delete_subject(subject: str, version: int) -> Record:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return record(key, {"subject": subject, "version": version})


def clear_subject(subject: str) -> Record:
    return record({"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": 0}, {"subject": subject})


def catalogue_of(client: Any) -> SchemaCatalogue:
    """What a (mock) client of confluent-kafka has registered."""
    versions = []
    for subject in client.get_subjects():
        for number in client.get_versions(subject):
            found = client.get_version(subject, number)
            references = found.schema.references or []
            schema = RegisteredSchema(
                type=SchemaType(found.schema.schema_type or "AVRO"),
                text=found.schema.schema_str,
                references=tuple(SchemaReference(each.name, each.subject, each.version) for each in references),
                id=found.schema_id,
                guid=None if found.guid is None else UUID(found.guid),
            )
            versions.append(SubjectVersion(subject, number, schema))
    return SchemaCatalogue(versions)


def _compact(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
