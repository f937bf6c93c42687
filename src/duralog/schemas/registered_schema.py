"""Schemas as values: text, type and references, under the ids, GUIDs, subjects and versions of a schema registry.

Nothing here changes after it is made. An id means the same schema for as long as its registry exists, so a task may
keep what it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from duralog.errors import SchemaError

DEFAULT_CONTEXT = "."
"""The context of every subject that names none."""

MAX_SCHEMA_BYTES = 8 << 20
"""Of one schema's text. A record of `_schemas` has one MiB at most by default."""


class SchemaType(StrEnum):
    """What a schema is written in, by the registry's names."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one imports."""

    name: str
    """What the referrer calls it: a full name in Avro, a file in Protobuf, a URI in JSON Schema."""
    subject: str
    version: int
    """-1 is the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema and, if a registry has it, its id and GUID."""

    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()
    id: int | None = None
    guid: UUID | None = None
    context: str = DEFAULT_CONTEXT
    """Where its id is valid, and where its references are looked up."""

    def __post_init__(self) -> None:
        if len(self.text) > MAX_SCHEMA_BYTES:
            raise SchemaError(f"{self.name} has {len(self.text):,} characters, more than {MAX_SCHEMA_BYTES:,}")

    @property
    def name(self) -> str:
        """How an error calls it."""
        if self.id is None:
            return "the given schema"
        return f"schema id {self.id}" + ("" if self.context == DEFAULT_CONTEXT else f" of context {self.context}")


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject."""

    subject: str
    """Qualified (`:.context:subject`), unless it belongs to the default context."""
    version: int
    schema: RegisteredSchema
    deleted: bool = False
    """Soft-deleted: not listed and never the latest, but still found by its id and by references."""


def context_of(subject: str) -> str:
    """The context that a subject names, e.g. `.prod` for `:.prod:orders-value`."""
    if subject.startswith(":."):
        context, separator, _ = subject[1:].partition(":")
        if separator:
            return context
    return DEFAULT_CONTEXT


def in_context(subject: str, context: str) -> str:
    """The subject's qualified name, if it is looked up from a context: one that names its own keeps it."""
    if subject.startswith(":.") and ":" in subject[1:]:
        own, _, bare = subject[1:].partition(":")
        return bare if own == DEFAULT_CONTEXT else subject
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"
