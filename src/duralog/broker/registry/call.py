"""One request: what its path, its query and its body say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duralog.broker.registry.answers import INVALID_SCHEMA, INVALID_VERSION, UNPROCESSABLE, RegistryError
from duralog.broker.registry.registry import Given
from duralog.broker.registry.state import MAX_VERSION
from duralog.errors import SchemaError
from duralog.schemas.registered_schema import DEFAULT_CONTEXT, RegisteredSchema, context_of, in_context
from duralog.schemas.schemas_topic import GLOBAL, schema_from_json

_NOT_KEPT = ("metadata", "ruleSet")
"""Of a schema. A client that relies on one of them must not believe that it is there."""


@dataclass(frozen=True, slots=True)
class Call:
    parts: tuple[str, ...]
    """The variable ones of the path."""
    query: Mapping[str, str]
    body: bytes
    context: str

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def subject(self, number: int = 0) -> str:
        return in_context(self.parts[number], self.context)

    def place(self) -> str:
        """What a config is for: a subject, a context (`:.context:`), or `GLOBAL`."""
        if self.parts:
            return self.subject()
        return GLOBAL if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def fields(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
            # Half of a surrogate pair is JSON, but not text: no record could hold it.
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RegistryError(UNPROCESSABLE, "expected a JSON object as the body of the request")
        return found

    def number(self) -> int:
        """An id in the path."""
        text = self.parts[0]
        if not text.isdecimal() or len(text) > 10:
            raise RegistryError(404, f"expected the id of a schema; found {text[:40]!r}")
        return int(text)

    def given(self, subject: str) -> Given:
        """The schema in the body."""
        fields = self.fields()
        for name in _NOT_KEPT:
            if fields.get(name):
                # Serializers would write what a rule was to encrypt or check.
                raise RegistryError(INVALID_SCHEMA, f"schemas with `{name}` are not supported: leave it out")
        number = fields.get("id")
        version = fields.get("version")
        if version not in (None, -1) and not _is_version(version):
            raise RegistryError(INVALID_VERSION, f"`version` is not a number from 1 to {MAX_VERSION}")
        try:
            # Only an import has an id; elsewhere any number will do until one is assigned.
            schema = schema_from_json({**fields, "id": 0 if number in (None, -1) else number}, context_of(subject))
        except SchemaError as error:
            raise RegistryError(INVALID_SCHEMA, f"invalid schema: {error}") from error
        if number in (None, -1):
            schema = RegisteredSchema(
                type=schema.type, text=schema.text, references=schema.references, context=schema.context
            )
        return Given(schema, version)


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_VERSION
