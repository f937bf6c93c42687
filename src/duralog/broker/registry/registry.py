"""Registers, looks up, compares and deletes schemas, and sets configs.

A request works with the state of one moment (`state`), which never changes. A new schema is parsed and compared without
the lock, so no other request waits for that; then the lock is taken, and if what was checked has changed meanwhile, the
check begins again. Ids are counted by context. A schema that is known in the context keeps its id under every subject.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from duralog.broker.registry import room
from duralog.broker.registry.answers import (
    ID_DOES_NOT_MATCH,
    INCOMPATIBLE_SCHEMA,
    INVALID_SUBJECT,
    NOT_PERMITTED,
    REFERENCE_EXISTS,
    SCHEMA_NOT_FOUND,
    STORE_ERROR,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    TOO_LARGE,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryError,
)
from duralog.broker.registry.checks import SchemaChecks
from duralog.broker.registry.digests import SchemaDigests
from duralog.broker.registry.levels import Level, Mode
from duralog.broker.registry.records import schema_guid, schema_key, schema_value, subject_key
from duralog.broker.registry.schemas_log import SchemasLog
from duralog.broker.registry.state import MAX_VERSION, RegistryState, is_context, name_of
from duralog.errors import SchemaError
from duralog.schemas.compatibility import ParsedSchema
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType, SubjectVersion, context_of
from duralog.schemas.schemas_topic import GLOBAL, SCHEMAS_TOPIC

_LONGEST_SUBJECT = 1000
_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Given:
    """A schema as a request has it, with the id and version that only an import may give."""

    schema: RegisteredSchema
    version: int | None = None


class Registry:
    def __init__(self, log: SchemasLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._checks = SchemaChecks()
        self._digests = SchemaDigests()

    @property
    def cluster_id(self) -> str:
        return self._log.cluster_id

    def state(self) -> RegistryState:
        """What the topic has now."""
        with self._changing() as state:
            return state

    @contextmanager
    def _changing(self) -> Iterator[RegistryState]:
        """The state stays what it is, but for what is appended meanwhile by this thread."""
        with self._lock:
            self._log.refresh()
            yield self._log.state

    # Finding

    def look_up(self, subject: str, given: Given, *, deleted: bool = False, normalize: bool = False) -> SubjectVersion:
        """The version of a subject that has this schema."""
        self._check_size(given.schema)
        state = self.state()
        schema = state.with_numbers(given.schema)
        versions = state.catalogue.versions(subject, deleted=deleted)
        found = self._digests.same_version(versions, schema, normalize or state.is_normalized(subject))
        if found is None:
            self._checks.parsed(state, schema)
            state.versions(subject, deleted=deleted)
            raise RegistryError(SCHEMA_NOT_FOUND, "schema not found")
        return found

    def formatted(self, schema: RegisteredSchema, format_name: str) -> str:
        """The text of a schema, or what `format=` asks for: `serialized` is the descriptor of a Protobuf schema."""
        if format_name == "serialized" and schema.type is SchemaType.PROTOBUF:
            found = self._checks.parsed(self.state(), schema)
            return base64.b64encode(found.content.SerializeToString()).decode()
        return schema.text

    def compare(self, subject: str, given: Given, version: str | None) -> list[str]:
        """Why a schema does not go with a version of the subject, or with those that its level names."""
        self._check_size(given.schema)
        state = self.state()
        parsed = self._checks.parsed(state, state.with_numbers(given.schema), is_new=True)
        level = state.level(subject)
        earlier = state.catalogue.versions(subject)
        if version is not None:
            # Without versions, everything goes with the latest.
            earlier = [state.version(subject, version)] if earlier or version not in ("latest", "-1") else []
        elif not level.is_transitive:
            earlier = earlier[-1:]
        return self._checks.problems(state, level, parsed, earlier)

    # Registering

    def register(self, subject: str, given: Given, *, normalize: bool = False) -> tuple[SubjectVersion, bool]:
        """The version of this schema in the subject, and whether it is new."""
        _check_subject(subject)
        self._check_size(given.schema)
        if is_context(subject):
            raise RegistryError(INVALID_SUBJECT, f"{subject!r} is a context: expected the name of a subject after it")
        for _ in range(_MOST_TRIES):
            state = self.state()
            is_normal = normalize or state.is_normalized(subject)
            schema = state.with_numbers(replace(given.schema, context=context_of(subject)))
            there = [
                one
                for one in state.catalogue.versions(subject)
                if given.schema.id in (None, -1, one.schema.id) and given.version in (None, -1, one.version)
            ]
            known = self._digests.same_version(there, schema, is_normal)
            if known is not None:
                return known, False
            parsed = self._checked(state, subject, given, schema)
            same = self._digests.same_id(state, schema, is_normal)
            with self._changing() as now:
                if _is_as_checked(state, now, subject, schema):
                    same = same if now is state else self._digests.same_id(now, schema, is_normal)
                    schema = replace(schema, text=parsed.text if is_normal else schema.text)
                    made = self._with_id(now, schema, same, is_normal)
                    return self._append(now, subject, made, given.version), True
        raise RegistryError(STORE_ERROR, f"other clients change subject {subject!r} all the time: try again")

    def _checked(self, state: RegistryState, subject: str, given: Given, schema: RegisteredSchema) -> ParsedSchema:
        is_import = state.check_writable(subject) is Mode.IMPORT
        if not is_import and (given.schema.id not in (None, -1) or given.version not in (None, -1)):
            raise RegistryError(NOT_PERMITTED, f"subject {subject!r} is not in mode IMPORT: leave out id and version")
        parsed = self._checks.parsed(state, schema, is_new=not is_import)
        if not is_import:
            level = state.level(subject)
            earlier = state.catalogue.versions(subject)
            found = self._checks.problems(state, level, parsed, earlier if level.is_transitive else earlier[-1:])
            if found:
                raise RegistryError(INCOMPATIBLE_SCHEMA, f"the schema is not {level}: {'; '.join(found)[:4000]}")
        return parsed

    def _check_size(self, schema: RegisteredSchema) -> None:
        """Before anything that takes long: what the topic cannot have."""
        most = self._log.largest_record_bytes
        if len(schema.text) > most:
            raise RegistryError(
                TOO_LARGE,
                f"the schema has {len(schema.text):,} characters, more than the {most:,} bytes of max.message.bytes "
                f"of the topic {SCHEMAS_TOPIC}",
            )

    def _with_id(
        self, state: RegistryState, schema: RegisteredSchema, same: RegisteredSchema | None, normalize: bool
    ) -> RegisteredSchema:
        """The schema with an id: the same one that the context has, with its text, or a new one.

        An id has one text: readers of `_schemas` refuse a record that gives it another, if only by white space.
        """
        if schema.id in (None, -1):
            if same is not None:
                return same
            number = state.last_ids.get(schema.context, 0) + 1
        else:
            number = schema.id or 0
            taken = state.catalogue.by_id(number, schema.context)
            if taken is not None:
                # Two ids may have one schema, if they were imported.
                if not self._digests.are_same(taken, schema, normalize):
                    raise RegistryError(ID_DOES_NOT_MATCH, f"id {number} belongs to another schema")
                return taken
        if number > MAX_VERSION:
            raise RegistryError(STORE_ERROR, f"the context has no id left: its largest is {MAX_VERSION}")
        room.check_schema(state, schema)
        made = replace(schema, id=number, guid=None)
        return replace(made, guid=schema_guid(made))

    def _append(
        self, state: RegistryState, subject: str, schema: RegisteredSchema, version: int | None
    ) -> SubjectVersion:
        if version in (None, -1):
            latest = max((one.version for one in state.catalogue.versions(subject, deleted=True)), default=0)
            version = latest + 1
        assert version is not None
        room.check_version(state)
        made = SubjectVersion(subject, version, schema)
        self._log.append([(schema_key(subject, version), schema_value(made))])
        there = self._log.state.catalogue.versions(subject)
        if not any(one.version == version and one.schema.id == schema.id for one in there):
            raise RegistryError(STORE_ERROR, f"schema {schema.id} cannot be kept: the log says why")
        return made

    # Deleting

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        with self._changing() as state:
            state.check_writable(subject)
            found = state.versions(subject, deleted=True)
            living = [one for one in found if not one.deleted]
            if permanent:
                if living:
                    raise RegistryError(
                        SUBJECT_NOT_SOFT_DELETED, f"delete subject {subject!r} first without permanent=true"
                    )
                _check_unreferenced(state, found)
                self._log.append([(schema_key(subject, one.version), None) for one in found])
                return [one.version for one in found]
            if not living:
                raise RegistryError(
                    SUBJECT_SOFT_DELETED, f"subject {subject!r} is deleted; permanent=true removes it for good"
                )
            _check_unreferenced(state, living)
            records: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = [
                (subject_key("DELETE_SUBJECT", subject), {"subject": subject, "version": living[-1].version})
            ]
            if subject in state.levels or subject in state.normalizes:
                records.append((subject_key("CONFIG", subject), None))
            if subject in state.modes:
                records.append((subject_key("MODE", subject), None))
            self._log.append(records)
            return [one.version for one in living]

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        with self._changing() as state:
            state.check_writable(subject)
            one = state.version(subject, version, deleted=True)
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
            _check_unreferenced(state, [one])
            value = None if permanent else schema_value(replace(one, deleted=True))
            self._log.append([(schema_key(subject, one.version), value)])
            return one.version

    # Configs

    def set_config(self, subject: str, level: Level | None, normalize: bool | None) -> dict[str, Any]:
        """Set what is not None; the rest stays what is in force. Returns what the subject, context or registry has."""
        if subject != GLOBAL:
            _check_subject(subject)
        with self._changing() as state:
            state.check_writable(subject)
            room.check_configs(subject, {**state.levels, **state.normalizes})
            # Karapace loads no config without a level.
            fields: dict[str, Any] = {"compatibilityLevel": str(level or state.level(subject))}
            if normalize is not None or subject in state.normalizes:
                fields["normalize"] = state.normalizes[subject] if normalize is None else normalize
            self._log.append([(subject_key("CONFIG", subject), fields)])
            return fields

    def reset_config(self, subject: str) -> Level:
        """To that of the context or the registry, or the registry's to its default. Returns the level before."""
        with self._changing() as state:
            if subject != GLOBAL and subject not in state.levels and subject not in state.normalizes:
                raise RegistryError(SUBJECT_NOT_FOUND, f"{name_of(subject)} has no config of its own")
            before = state.level(subject)
            state.check_writable(subject)
            self._log.append([(subject_key("CONFIG", subject), None)])
            return before

    def set_mode(self, subject: str, mode: Mode, *, force: bool) -> None:
        if subject != GLOBAL:
            _check_subject(subject)
        with self._changing() as state:
            room.check_configs(subject, state.modes)
            if mode is Mode.IMPORT and state.mode(subject) is not Mode.IMPORT and not force:
                has_schemas = any(
                    subject in (GLOBAL, name) or (is_context(subject) and context_of(name) == context_of(subject))
                    for name in state.catalogue.subjects()
                )
                if has_schemas:
                    raise RegistryError(NOT_PERMITTED, "there are schemas: mode IMPORT needs force=true")
            self._log.append([(subject_key("MODE", subject), {"mode": str(mode)})])

    def reset_mode(self, subject: str) -> Mode:
        with self._changing() as state:
            if subject != GLOBAL and subject not in state.modes:
                raise RegistryError(SUBJECT_NOT_FOUND, f"{name_of(subject)} has no mode of its own")
            before = state.own_mode(subject)
            self._log.append([(subject_key("MODE", subject), None)])
            return before


def _is_as_checked(before: RegistryState, now: RegistryState, subject: str, schema: RegisteredSchema) -> bool:
    """Whether all that a check of a new version depends on is as it was."""
    if now is before:
        return True
    try:
        references = now.catalogue.resolve(schema)
    except SchemaError:
        return False
    return (
        references == before.catalogue.resolve(schema)
        and (now.level(subject), now.mode(subject)) == (before.level(subject), before.mode(subject))
        and now.is_normalized(subject) == before.is_normalized(subject)
        and now.catalogue.versions(subject, deleted=True) == before.catalogue.versions(subject, deleted=True)
    )


def _check_unreferenced(state: RegistryState, versions: list[SubjectVersion]) -> None:
    """Versions that are deleted together may refer to one another."""
    referrers = state.referrers()
    deleted = {(one.subject, one.version) for one in versions}
    for one in versions:
        for each in referrers.get((one.subject, one.version), ()):
            if (each.subject, each.version) not in deleted:
                raise RegistryError(
                    REFERENCE_EXISTS,
                    f"subject {each.subject!r} version {each.version} refers to version {one.version} of subject "
                    f"{one.subject!r}",
                )


def _check_subject(subject: str) -> None:
    if not subject or len(subject) > _LONGEST_SUBJECT or not subject.isprintable():
        raise RegistryError(INVALID_SUBJECT, f"a subject has 1 to {_LONGEST_SUBJECT} printable characters")
