"""The catalogue that the records of a `_schemas` topic add up to: a registry's whole state, with no registry running.

Key and value are JSON. Confluent's registry, Karapace and Redpanda write the same keytypes:

- `SCHEMA`: a version of a subject; with `deleted`, a soft-deleted one; without a value, one that is gone for good.
- `DELETE_SUBJECT`: all versions up to one are soft-deleted. `CLEAR_SUBJECT`: the soft-deleted ones are gone for good.
- `CONFIG` and `MODE`: the compatibility level and the mode of a subject, or of all; without a value, the default again.
- `CONTEXT`, `NOOP` and keytypes that came later change no schema.

Later records win, and compaction may have removed earlier ones. As in Confluent's registry, a record that gives another
schema to an id in use is refused. It is listed in `problems`, as are records that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from duralog.errors import SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.registered_schema import (
    DEFAULT_CONTEXT,
    MAX_SCHEMA_BYTES,
    RegisteredSchema,
    SchemaReference,
    SchemaType,
    SubjectVersion,
    context_of,
    in_context,
)

SCHEMAS_TOPIC = "_schemas"
"""What registries call the topic, unless they are configured otherwise."""

_MAX_PROBLEMS = 100
_MAX_ID = 2**31 - 1

_OTHER_KEYTYPES = ("CONTEXT", "NOOP")

GLOBAL = ""
"""Stands for the subject of a level or mode that holds for all."""


def read_schemas_topic(records: Iterable[tuple[bytes | None, bytes | None]]) -> SchemaCatalogue:
    """The catalogue after the keys and values of all records, in the order of their offsets."""
    state = SchemasTopic()
    for number, (key, value) in enumerate(records):
        try:
            state.apply(key, value)
        except SchemaError as error:
            state.report(f"record {number} of the schemas topic: {error}")
    found = state.catalogue()
    found.check_size()
    return found


def schema_from_json(value: dict[str, object], context: str) -> RegisteredSchema:
    """What a record of `_schemas` or an answer of the REST API says of one schema; raises `SchemaError`."""
    text = value.get("schema")
    if not isinstance(text, str):
        raise SchemaError("it has no text in `schema`")
    id_ = _whole(value, "id", 0, _MAX_ID)
    # Avro's schemas need no type: they are older than the field.
    kind = value.get("schemaType") or SchemaType.AVRO
    if kind not in list(SchemaType):
        raise SchemaError(f"schema id {id_} is of an unknown type, {str(kind)[:50]!r}")
    guid = value.get("guid")
    try:
        guid = None if guid is None else UUID(str(guid))
    except ValueError:
        raise SchemaError(f"schema id {id_} has a GUID that is not one: {str(guid)[:50]!r}") from None
    references = value.get("references") or []
    if not isinstance(references, list) or not all(isinstance(each, dict) for each in references):
        raise SchemaError(f"schema id {id_} has references that are not a list of objects")
    return RegisteredSchema(
        type=SchemaType(str(kind)),
        text=text,
        references=tuple(
            SchemaReference(_text(each, "name"), _text(each, "subject"), _whole(each, "version", -1, _MAX_ID))
            for each in references
        ),
        id=id_,
        guid=guid,
        context=context,
    )


class SchemasTopic:
    """The state after some records: `apply` one after the other, then ask for the `catalogue`."""

    def __init__(self, *, keeps_dropped: bool = True) -> None:
        """`keeps_dropped`: a schema is found by its id after its versions were deleted for good."""
        self._keeps_dropped = keeps_dropped
        self._versions: dict[str, dict[int, SubjectVersion]] = {}
        self._schemas: dict[tuple[str, int], RegisteredSchema] = {}
        self._uses: dict[tuple[str, int], int] = {}
        """How many versions have an id: one that none has may get another schema."""
        self._problems: list[str] = []
        self._unreported = 0
        self.levels: dict[str, str] = {}
        """Of compatibility, by subject, context (`:.context:`), or `GLOBAL`."""
        self.normalizes: dict[str, bool] = {}
        """Whether schemas are normalized, by the same names."""
        self.modes: dict[str, str] = {}
        self.last_ids: dict[str, int] = {}
        """The largest id that a record has given to a schema, by context; those of deleted ones, too."""

    def report(self, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)
        else:
            self._unreported += 1

    def catalogue(self) -> SchemaCatalogue:
        problems = list(self._problems)
        if self._unreported:
            problems.append(f"{self._unreported:,} more")
        versions = (each for versions in self._versions.values() for each in versions.values())
        return SchemaCatalogue(versions, self._schemas.values(), problems, self.levels)

    def apply(self, key_bytes: bytes | None, value_bytes: bytes | None) -> None:
        if key_bytes is None:
            raise SchemaError("it has no key")
        key = _object(key_bytes, "key")
        keytype = key.get("keytype")
        if keytype == "SCHEMA":
            subject = in_context(_text(key, "subject"), DEFAULT_CONTEXT)
            version = _whole(key, "version", 1, _MAX_ID)
            if value_bytes:
                self._put(subject, version, _object(value_bytes, "value"))
            else:
                self._drop(subject, version)
        elif keytype == "DELETE_SUBJECT":
            if value_bytes:
                value = _object(value_bytes, "value")
                self._delete(in_context(_text(value, "subject"), DEFAULT_CONTEXT), _whole(value, "version", 0, _MAX_ID))
        elif keytype == "CLEAR_SUBJECT":
            if value_bytes:
                self._clear(_text(_object(value_bytes, "value"), "subject"))
        elif keytype in ("CONFIG", "MODE"):
            subject = in_context(str(key.get("subject") or GLOBAL), DEFAULT_CONTEXT)
            value = _object(value_bytes, "value") if value_bytes else {}
            if keytype == "MODE":
                _keep(self.modes, subject, value.get("mode"), str)
            else:
                _keep(self.levels, subject, value.get("compatibilityLevel"), str)
                _keep(self.normalizes, subject, value.get("normalize"), bool)
        elif keytype not in _OTHER_KEYTYPES:
            raise SchemaError(f"its keytype is unknown: {str(keytype)[:50]!r}")

    def _put(self, subject: str, version: int, value: dict[str, object]) -> None:
        schema = schema_from_json(value, context_of(subject))
        assert schema.id is not None
        place = (schema.context, schema.id)
        versions = self._versions.setdefault(subject, {})
        before = versions.get(version)
        in_use = self._uses.get(place, 0) - (before is not None and before.schema.id == schema.id)
        known = self._schemas.get(place)
        if in_use > 0 and known is not None and known.text != schema.text:
            raise SchemaError(f"{schema.name} exists already with another text: subject {subject!r} version {version}")
        # One schema in many subjects is in memory once.
        schema = known if known == schema else schema
        if before is not None:
            self._release(before)
        versions[version] = SubjectVersion(subject, version, schema, value.get("deleted") is True)
        self._uses[place] = self._uses.get(place, 0) + 1
        self._schemas[place] = schema
        self.last_ids[schema.context] = max(self.last_ids.get(schema.context, 0), place[1])

    def _release(self, version: SubjectVersion) -> None:
        assert version.schema.id is not None
        place = version.schema.context, version.schema.id
        self._uses[place] -= 1
        if not self._uses[place]:
            del self._uses[place]
            if not self._keeps_dropped:
                del self._schemas[place]

    def _drop(self, subject: str, version: int) -> None:
        before = self._versions.get(subject, {}).pop(version, None)
        if before is not None:
            self._release(before)

    def _delete(self, subject: str, up_to: int) -> None:
        versions = self._versions.get(subject, {})
        for number, each in versions.items():
            if number <= up_to:
                versions[number] = SubjectVersion(subject, number, each.schema, deleted=True)

    def _clear(self, subject: str) -> None:
        # `:.context:` alone is the whole context.
        context = context_of(subject)
        whole = subject == f":{context}:"
        name = in_context(subject, DEFAULT_CONTEXT)
        for each in [one for one in self._versions if one == name or (whole and context_of(one) == context)]:
            for number in [number for number, one in self._versions[each].items() if one.deleted]:
                self._drop(each, number)


def _keep(kept: dict[str, Any], subject: str, value: object, kind: type) -> None:
    if isinstance(value, kind):
        kept[subject] = value
    else:
        kept.pop(subject, None)


def _object(data: bytes, part: str) -> dict[str, object]:
    if len(data) > 2 * MAX_SCHEMA_BYTES:
        raise SchemaError(f"its {part} has {len(data):,} bytes, more than {2 * MAX_SCHEMA_BYTES:,}")
    try:
        found = json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise SchemaError(f"its {part} is not JSON: {bytes(data[:40])!r}") from None
    if not isinstance(found, dict):
        raise SchemaError(f"its {part} is not a JSON object: {bytes(data[:40])!r}")
    return found


def _text(value: dict[str, object], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise SchemaError(f"it has no text in `{name}`")
    return found


def _whole(value: dict[str, object], name: str, least: int, most: int) -> int:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise SchemaError(f"`{name}` is not a whole number from {least} to {most}: {str(found)[:50]!r}")
    return found
