"""What the records of `_schemas` add up to at one moment. It never changes: requests read it without a lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from duralog.broker.registry.answers import (
    COMPATIBILITY_NOT_CONFIGURED,
    INVALID_VERSION,
    MODE_NOT_CONFIGURED,
    NOT_PERMITTED,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    VERSION_NOT_FOUND,
    RegistryError,
)
from duralog.broker.registry.levels import Level, Mode
from duralog.schemas.catalogue import LATEST, SchemaCatalogue
from duralog.schemas.registered_schema import (
    DEFAULT_CONTEXT,
    RegisteredSchema,
    SchemaReference,
    SubjectVersion,
    context_of,
    in_context,
)
from duralog.schemas.schemas_topic import GLOBAL

MAX_VERSION = 2**31 - 1
LATEST_VERSION = -1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RegistryState:
    catalogue: SchemaCatalogue
    levels: Mapping[str, str]
    """Of compatibility, by subject, context (`:.context:`), or `GLOBAL`."""
    normalizes: Mapping[str, bool]
    modes: Mapping[str, str]
    last_ids: Mapping[str, int]
    """The largest id of each context that a record has, those of deleted schemas included."""

    # Schemas

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        found = self.catalogue.versions(subject, deleted=deleted)
        if not found:
            raise RegistryError(SUBJECT_NOT_FOUND, f"subject {subject!r} not found")
        return found

    def version(self, subject: str, version: str, *, deleted: bool = False) -> SubjectVersion:
        number = version_number(version)
        found = self.versions(subject, deleted=deleted)
        if number == LATEST_VERSION:
            return next((one for one in reversed(found) if not one.deleted), found[-1])
        for one in found:
            if one.version == number:
                return one
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

    def uses(self, number: int, context: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """The subjects and versions that have an id."""
        return [one for one in self._all(deleted=deleted) if one.schema.id == number and one.schema.context == context]

    def _all(self, *, deleted: bool) -> Iterator[SubjectVersion]:
        for subject in self.catalogue.subjects(deleted=deleted):
            yield from self.catalogue.versions(subject, deleted=deleted)

    # References

    def with_numbers(self, schema: RegisteredSchema) -> RegisteredSchema:
        """A schema whose references to latest versions name those of now.

        Its meaning must not change with the next version. What does not exist stays for `resolve` to refuse.
        """
        references = tuple(
            replace(one, version=self._number(one, schema.context) or one.version) for one in schema.references
        )
        return schema if references == schema.references else replace(schema, references=references)

    def referrers(self) -> Mapping[tuple[str, int], list[SubjectVersion]]:
        """Who refers to a version, soft-deleted ones included: they can be restored, and their records decoded."""
        found = defaultdict(list)
        for one in self._all(deleted=True):
            for reference in one.schema.references:
                number = self._number(reference, one.schema.context)
                if number is not None:
                    found[in_context(reference.subject, one.schema.context), number].append(one)
        return found

    def _number(self, reference: SchemaReference, context: str) -> int | None:
        if reference.version != LATEST_VERSION:
            return reference.version
        versions = self.catalogue.versions(in_context(reference.subject, context))
        return versions[-1].version if versions else None

    # Configs: a subject's own, or its context's, or that of all.

    def level(self, subject: str) -> Level:
        return Level.of(_in_force(self.levels, subject, Level.BACKWARD))

    def check_has_config(self, subject: str) -> None:
        if subject != GLOBAL and subject not in self.levels and subject not in self.normalizes:
            raise RegistryError(
                COMPATIBILITY_NOT_CONFIGURED, f"{name_of(subject)} has no compatibility level of its own"
            )

    def is_normalized(self, subject: str) -> bool:
        return _in_force(self.normalizes, subject, False)

    def mode(self, subject: str) -> Mode:
        for place in _places(subject):
            if self.modes.get(place) == Mode.READONLY_OVERRIDE:
                return Mode.READONLY_OVERRIDE
        return Mode.of(_in_force(self.modes, subject, Mode.READWRITE))

    def own_mode(self, subject: str) -> Mode:
        found = self.modes.get(subject)
        if found is None and subject != GLOBAL:
            raise RegistryError(MODE_NOT_CONFIGURED, f"{name_of(subject)} has no mode of its own")
        return Mode.of(found or Mode.READWRITE)

    def check_writable(self, subject: str) -> Mode:
        mode = self.mode(subject)
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise RegistryError(NOT_PERMITTED, f"{name_of(subject)} is in mode {mode}")
        return mode


def _places(subject: str) -> tuple[str, ...]:
    context = context_of(subject)
    return (subject, GLOBAL) if context == DEFAULT_CONTEXT else (subject, f":{context}:", GLOBAL)


def _in_force(configs: Mapping[str, T], subject: str, default: T) -> T:
    return next((configs[place] for place in _places(subject) if place in configs), default)


def is_context(subject: str) -> bool:
    """Whether a config is that of a context: a subject without a name in it."""
    return subject == f":{context_of(subject)}:"


def name_of(subject: str) -> str:
    """In an error."""
    if subject == GLOBAL:
        return "the registry"
    return f"{'context' if is_context(subject) else 'subject'} {subject!r}"


def version_number(text: str) -> int:
    if text in (LATEST, str(LATEST_VERSION)):
        return LATEST_VERSION
    if text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= MAX_VERSION:
        return int(text)
    raise RegistryError(
        INVALID_VERSION, f"expected a version from 1 to {MAX_VERSION} or {LATEST!r}; found {text[:40]!r}"
    )
