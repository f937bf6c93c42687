"""Implements the requests of the interface: register, look up, delete, compare and configure schemas.

Values in and out; one thread at a time (`lock`). Ids are counted by context. A schema that is known in the context
keeps its id under every subject.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from duralog.broker.registry.answers import (
    COMPATIBILITY_NOT_CONFIGURED,
    ID_DOES_NOT_MATCH,
    INCOMPATIBLE_SCHEMA,
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    INVALID_VERSION,
    MODE_NOT_CONFIGURED,
    NOT_PERMITTED,
    REFERENCE_EXISTS,
    SCHEMA_NOT_FOUND,
    STORE_ERROR,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryError,
)
from duralog.broker.registry.levels import Level, Mode
from duralog.broker.registry.schemas_log import SchemasLog, schema_key, subject_key
from duralog.errors import SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.compatibility import ParsedSchema, parse
from duralog.schemas.compatibility.identity import same_schema
from duralog.schemas.compatibility.work import Work
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType, SubjectVersion, context_of, in_context
from duralog.schemas.schemas_topic import GLOBAL

LATEST = "latest"
MAX_VERSION = 2**31 - 1
_LONGEST_SUBJECT = 1000


@dataclass(frozen=True, slots=True)
class Given:
    """A schema as a request has it, with the id and version that only an import may give."""

    schema: RegisteredSchema
    version: int | None = None


class Registry:
    def __init__(self, log: SchemasLog) -> None:
        self._log = log
        self._lock = threading.Lock()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """For one request: the state is what the topic has, and stays so."""
        with self._lock:
            self._log.refresh()
            yield

    @property
    def catalogue(self) -> SchemaCatalogue:
        return self._log.catalogue

    # Finding

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        found = self.catalogue.versions(subject, deleted=deleted)
        if not found:
            raise RegistryError(SUBJECT_NOT_FOUND, f"subject {subject!r} not found")
        return found

    def version(self, subject: str, version: str, *, deleted: bool = False) -> SubjectVersion:
        number = version_number(version)
        found = self.versions(subject, deleted=deleted)
        for one in found:
            if one.version == number:
                return one
        if number == -1:
            return found[-1]
        raise RegistryError(VERSION_NOT_FOUND, f"version {version} of subject {subject!r} not found")

    def by_id(self, number: int, context: str) -> RegisteredSchema:
        found = self.catalogue.by_id(number, context)
        if found is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"schema {number} not found")
        return found

    def by_guid(self, guid: str) -> RegisteredSchema:
        try:
            found = self.catalogue.by_guid(UUID(guid))
        except ValueError:
            found = None
        if found is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"schema {guid[:40]} not found")
        return found

    def formatted(self, schema: RegisteredSchema, format_name: str) -> str:
        """The text of a schema, or what `format=` asks for: `serialized` is the descriptor of a Protobuf schema."""
        if format_name == "serialized" and schema.type is SchemaType.PROTOBUF:
            return base64.b64encode(self.parsed(schema).content.SerializeToString()).decode()
        return schema.text

    def uses(self, number: int, context: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """The subjects and versions that have an id."""
        return [
            one
            for subject in self.catalogue.subjects(deleted=deleted)
            if context_of(subject) == context
            for one in self.catalogue.versions(subject, deleted=deleted)
            if one.schema.id == number
        ]

    def referrers(self, subject: str, version: int) -> list[int]:
        """The ids of living schemas that refer to a version."""
        found = set()
        for name in self.catalogue.subjects():
            for one in self.catalogue.versions(name):
                for reference in one.schema.references:
                    if (in_context(reference.subject, one.schema.context), reference.version) == (subject, version):
                        found.add(one.schema.id)
        return sorted(number for number in found if number is not None)

    def look_up(self, subject: str, given: Given, *, deleted: bool = False, normalize: bool = False) -> SubjectVersion:
        """The version of a subject that has this schema."""
        found = self.versions(subject, deleted=True)
        if not deleted and all(one.deleted for one in found):
            raise RegistryError(SUBJECT_NOT_FOUND, f"subject {subject!r} not found")
        there = [one for one in found if deleted or not one.deleted]
        same = [one for one in there if same_schema(one.schema, given.schema, normalize=normalize)]
        if not same:
            raise RegistryError(SCHEMA_NOT_FOUND, "schema not found")
        return same[-1]

    # Registering

    def register(self, subject: str, given: Given, *, normalize: bool = False) -> SubjectVersion:
        """The version of this schema in the subject: one that exists, or a new one."""
        _check_subject(subject)
        schema = replace(given.schema, context=context_of(subject))
        known = self.catalogue.versions(subject)
        for one in known:
            if same_schema(one.schema, schema, normalize=normalize) and given.schema.id in (None, -1, one.schema.id):
                return one
        mode = self._check_writable(subject)
        parsed = self.parsed(schema)
        is_import = mode is Mode.IMPORT
        if not is_import and (given.schema.id not in (None, -1) or given.version not in (None, -1)):
            raise RegistryError(NOT_PERMITTED, f"subject {subject!r} is not in mode IMPORT: leave out id and version")
        if not is_import:
            self._check_compatible(subject, parsed)
        text = parsed.text if normalize else schema.text
        made = self._with_id(replace(schema, text=text), normalize, given.schema.id if is_import else None)
        latest = max((one.version for one in self.catalogue.versions(subject, deleted=True)), default=0)
        version = given.version if is_import and given.version not in (None, -1) else latest + 1
        assert version is not None
        made = made if made.guid is not None else replace(made, guid=schema_guid(made))
        self._log.append([(schema_key(subject, version), _value(SubjectVersion(subject, version, made)))])
        if not any(one.version == version and one.schema.id == made.id for one in self.catalogue.versions(subject)):
            raise RegistryError(STORE_ERROR, f"schema {made.id} cannot be kept: the log says why")
        return SubjectVersion(subject, version, made)

    def parsed(self, schema: RegisteredSchema) -> ParsedSchema:
        try:
            return parse(schema, self.catalogue.resolve(schema))
        except SchemaError as error:
            raise RegistryError(INVALID_SCHEMA, f"invalid schema: {error}") from error

    def _with_id(self, schema: RegisteredSchema, normalize: bool, wanted: int | None) -> RegisteredSchema:
        """The schema with an id: the one that the context has, with its text, or a new one.

        An id has one text: readers of `_schemas` refuse a record that gives it another, if only by white space.
        """
        known = {number: self.catalogue.by_id(number, schema.context) for number in self.catalogue.ids(schema.context)}
        if wanted not in (None, -1):
            there = known.get(wanted)
            if there is not None and not same_schema(there, schema, normalize=normalize):
                raise RegistryError(ID_DOES_NOT_MATCH, f"id {wanted} belongs to another schema")
            return there or replace(schema, id=wanted, guid=None)
        for there in known.values():
            if there is not None and same_schema(there, schema, normalize=normalize):
                return there
        return replace(schema, id=max(known, default=0) + 1, guid=None)

    # Comparing

    def _check_compatible(self, subject: str, new: ParsedSchema) -> None:
        level = self.level(subject)
        earlier = self.catalogue.versions(subject)
        found = self.compare(level, new, earlier if level.is_transitive else earlier[-1:])
        if found:
            raise RegistryError(INCOMPATIBLE_SCHEMA, f"the schema is not {level}: {'; '.join(found)[:4000]}")

    def compare(self, level: Level, new: ParsedSchema, earlier: list[SubjectVersion]) -> list[str]:
        """Why a schema does not go with earlier versions. The newest is compared first."""
        # Other requests wait meanwhile.
        work = Work(versions=len(earlier))
        for one in reversed(earlier):
            try:
                work.add_text(one.schema.text)
                found = level.problems(new, parse(one.schema, self.catalogue.resolve(one.schema)), work)
            except SchemaError as error:
                return [f"version {one.version} cannot be compared: {error}"]
            if found:
                return [f"version {one.version}: {why}" for why in found]
        return []

    # Deleting

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        self._check_writable(subject)
        found = self.catalogue.versions(subject, deleted=True)
        if not found:
            raise RegistryError(SUBJECT_NOT_FOUND, f"subject {subject!r} not found")
        living = [one for one in found if not one.deleted]
        if permanent:
            if living:
                raise RegistryError(
                    SUBJECT_NOT_SOFT_DELETED, f"delete subject {subject!r} first without permanent=true"
                )
            self._check_unreferenced(subject, found)
            self._log.append([(schema_key(subject, one.version), None) for one in found])
            return [one.version for one in found]
        if not living:
            raise RegistryError(
                SUBJECT_SOFT_DELETED, f"subject {subject!r} is deleted; permanent=true removes it for good"
            )
        self._check_unreferenced(subject, living)
        records: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = [
            (subject_key("DELETE_SUBJECT", subject), {"subject": subject, "version": living[-1].version})
        ]
        if subject in self._log.compatibility:
            records.append((subject_key("CONFIG", subject), None))
        if subject in self._log.modes:
            records.append((subject_key("MODE", subject), None))
        self._log.append(records)
        return [one.version for one in living]

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        self._check_writable(subject)
        one = self.version(subject, version, deleted=True)
        if permanent and not one.deleted:
            raise RegistryError(
                VERSION_NOT_SOFT_DELETED,
                f"delete version {one.version} of subject {subject!r} first without permanent=true",
            )
        if not permanent and one.deleted:
            raise RegistryError(
                VERSION_SOFT_DELETED,
                f"version {one.version} of subject {subject!r} is deleted; permanent=true removes it for good",
            )
        self._check_unreferenced(subject, [one])
        value = None if permanent else _value(replace(one, deleted=True))
        self._log.append([(schema_key(subject, one.version), value)])
        return one.version

    def _check_unreferenced(self, subject: str, versions: list[SubjectVersion]) -> None:
        for one in versions:
            if self.referrers(subject, one.version):
                raise RegistryError(
                    REFERENCE_EXISTS, f"other schemas refer to version {one.version} of subject {subject!r}"
                )

    # Configs

    def level(self, subject: str) -> Level:
        """What holds for a subject."""
        own = self._log.compatibility
        return Level.of(own.get(subject, own.get(GLOBAL, Level.BACKWARD)))

    def own_level(self, subject: str) -> Level:
        found = self._log.compatibility.get(subject)
        if found is None and subject != GLOBAL:
            raise RegistryError(
                COMPATIBILITY_NOT_CONFIGURED, f"subject {subject!r} has no compatibility level of its own"
            )
        return Level.of(found or Level.BACKWARD)

    def set_level(self, subject: str, level: Level) -> None:
        if subject != GLOBAL:
            _check_subject(subject)
        self._check_writable(subject)
        self._log.append([(subject_key("CONFIG", subject), {"compatibilityLevel": str(level)})])

    def reset_level(self, subject: str) -> Level:
        """To the global one, or the global one to its default. Returns what it was."""
        before = self.own_level(subject)
        self._check_writable(subject)
        self._log.append([(subject_key("CONFIG", subject), None)])
        return before

    def mode(self, subject: str) -> Mode:
        """What holds for a subject."""
        own = self._log.modes
        for_all = Mode.of(own.get(GLOBAL, Mode.READWRITE))
        return for_all if for_all is Mode.READONLY_OVERRIDE else Mode.of(own.get(subject, for_all))

    def own_mode(self, subject: str) -> Mode:
        found = self._log.modes.get(subject)
        if found is None and subject != GLOBAL:
            raise RegistryError(MODE_NOT_CONFIGURED, f"subject {subject!r} has no mode of its own")
        return Mode.of(found or Mode.READWRITE)

    def set_mode(self, subject: str, mode: Mode, *, force: bool) -> None:
        if subject != GLOBAL:
            _check_subject(subject)
        before = self.mode(subject)
        if mode is Mode.IMPORT and before is not Mode.IMPORT and not force:
            has_schemas = self.catalogue.versions(subject) if subject != GLOBAL else self.catalogue.subjects()
            if has_schemas:
                raise RegistryError(NOT_PERMITTED, "there are schemas: mode IMPORT needs force=true")
        self._log.append([(subject_key("MODE", subject), {"mode": str(mode)})])

    def reset_mode(self, subject: str) -> Mode:
        before = self.own_mode(subject)
        self._log.append([(subject_key("MODE", subject), None)])
        return before

    def _check_writable(self, subject: str) -> Mode:
        mode = self.mode(subject)
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            what = "the registry" if subject == GLOBAL else f"subject {subject!r}"
            raise RegistryError(NOT_PERMITTED, f"{what} is in mode {mode}")
        return mode


def version_number(text: str) -> int:
    """-1 for the latest."""
    if text in (LATEST, "-1"):
        return -1
    if text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= MAX_VERSION:
        return int(text)
    raise RegistryError(
        INVALID_VERSION, f"expected a version from 1 to {MAX_VERSION} or {LATEST!r}; found {text[:40]!r}"
    )


def schema_guid(schema: RegisteredSchema) -> UUID:
    """The same for the same schema everywhere: it is made of the MD5 of its text and references."""
    digest = hashlib.md5(schema.text.encode(), usedforsecurity=False)
    for reference in schema.references:
        digest.update(f"{reference.name}\0{reference.subject}\0{reference.version}\0".encode())
    return UUID(bytes=digest.digest())


def _value(one: SubjectVersion) -> dict[str, Any]:
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


def _check_subject(subject: str) -> None:
    if not subject or len(subject) > _LONGEST_SUBJECT or not subject.isprintable():
        raise RegistryError(INVALID_SUBJECT, f"a subject has 1 to {_LONGEST_SUBJECT} printable characters")
