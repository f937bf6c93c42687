"""The paths of the interface: which of them does what, and the JSON of its answers.

A path may begin with `/contexts/:.name:`, which qualifies the subjects after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from duralog.broker.registry.answers import INVALID_SCHEMA, INVALID_VERSION, RegistryError
from duralog.broker.registry.levels import Level, Mode
from duralog.broker.registry.registry import MAX_VERSION, Given, Registry, version_number
from duralog.errors import SchemaError
from duralog.schemas.registered_schema import (
    DEFAULT_CONTEXT,
    RegisteredSchema,
    SchemaType,
    SubjectVersion,
    context_of,
    in_context,
)
from duralog.schemas.schemas_topic import GLOBAL, schema_from_json

_UNPROCESSABLE = 422
_MOST_LISTED = 10_000
_NOT_KEPT = ("metadata", "ruleSet")
"""Of a schema. A client that relies on one of them must not believe that it is there."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the variable parts of its path, its query and its body."""

    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes
    context: str

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def subject(self, number: int = 0) -> str:
        return in_context(self.parts[number], self.context)

    def fields(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
            # Half of a surrogate pair is JSON, but not text: no record could hold it.
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RegistryError(_UNPROCESSABLE, "expected a JSON object as the body of the request")
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


Answer = Any
"""What becomes JSON."""

Route = tuple[str, str, Callable[[Registry, Call], Answer]]


def answer(registry: Registry, method: str, target: str, body: bytes) -> Answer:
    """What a request is answered with; raises `RegistryError`."""
    path, query_text = _path_and_query(target)
    steps, context = _steps(path)
    query = {name: values[-1] for name, values in parse_qs(query_text, keep_blank_values=True).items()}
    is_known_path = False
    for known_method, pattern, handle in _ROUTES:
        parts = _matched(pattern, steps)
        if parts is None:
            continue
        is_known_path = True
        if known_method == method:
            with registry.lock():
                return handle(registry, Call(parts, query, body, context))
    if is_known_path:
        raise RegistryError(405, f"{method} is not a method of {path[:200]}")
    raise RegistryError(404, f"there is nothing at {path[:200]}")


def is_change(method: str, target: str) -> bool:
    """Whether a request may change something: all but those that read, look up or compare."""
    if method == "GET":
        return False
    steps, _ = _steps(_path_and_query(target)[0])
    return not any(
        known == method and handle in (_look_up, _compare) and _matched(pattern, steps) is not None
        for known, pattern, handle in _ROUTES
    )


def _path_and_query(target: str) -> tuple[str, str]:
    try:
        split = urlsplit(target)
    except ValueError:
        return target, ""
    return split.path, split.query


def _steps(path: str) -> tuple[list[str], str]:
    """Of a path, without its context; and the context."""
    steps = [unquote(step) for step in path.strip("/").split("/")] if path.strip("/") else []
    if len(steps) > 2 and steps[0] == "contexts":
        return steps[2:], steps[1].strip(":") or DEFAULT_CONTEXT
    return steps, DEFAULT_CONTEXT


def _matched(pattern: str, steps: list[str]) -> tuple[str, ...] | None:
    """The variable steps of a path, if it is one of the pattern."""
    expected = pattern.split("/") if pattern else []
    if len(expected) != len(steps):
        return None
    if any(want not in ("*", step) for want, step in zip(expected, steps, strict=True)):
        return None
    return tuple(step for want, step in zip(expected, steps, strict=True) if want == "*")


# Schemas


def _schema_fields(schema: RegisteredSchema) -> dict[str, Any]:
    fields: dict[str, Any] = {} if schema.type is SchemaType.AVRO else {"schemaType": str(schema.type)}
    if schema.references:
        fields["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    return {"schema": schema.text, **fields} | ({} if schema.guid is None else {"guid": str(schema.guid)})


def _version_fields(one: SubjectVersion) -> dict[str, Any]:
    return {"subject": one.subject, "version": one.version, "id": one.schema.id, **_schema_fields(one.schema)}


def _by_id(registry: Registry, call: Call) -> Answer:
    context = context_of(call.query["subject"]) if call.query.get("subject") else call.context
    found = registry.by_id(call.number(), context)
    fields = {**_schema_fields(found), "schema": registry.formatted(found, call.query.get("format", ""))}
    if call.flag("fetchMaxId"):
        fields["maxId"] = max(registry.catalogue.ids(context))
    return fields


def _text_by_id(registry: Registry, call: Call) -> Answer:
    return registry.formatted(registry.by_id(call.number(), call.context), call.query.get("format", ""))


def _by_guid(registry: Registry, call: Call) -> Answer:
    found = registry.by_guid(call.parts[0])
    return {**_schema_fields(found), "schema": registry.formatted(found, call.query.get("format", ""))}


def _subjects_of_id(registry: Registry, call: Call) -> Answer:
    registry.by_id(call.number(), call.context)
    return sorted({one.subject for one in registry.uses(call.number(), call.context, deleted=call.flag("deleted"))})


def _versions_of_id(registry: Registry, call: Call) -> Answer:
    registry.by_id(call.number(), call.context)
    found = registry.uses(call.number(), call.context, deleted=call.flag("deleted"))
    return [{"subject": one.subject, "version": one.version} for one in found]


def _schemas(registry: Registry, call: Call) -> Answer:
    deleted = call.flag("deleted")
    found = []
    for subject in _listed(registry, call, deleted=deleted):
        versions = registry.catalogue.versions(subject, deleted=deleted)
        found += [_version_fields(one) for one in (versions[-1:] if call.flag("latestOnly") else versions)]
    return _page(found, call)


# Subjects


def _listed(registry: Registry, call: Call, *, deleted: bool) -> list[str]:
    # Without a prefix, the default context's; `:*:` stands for all contexts.
    prefix = call.query.get("subjectPrefix", "")
    names = registry.catalogue.subjects(deleted=deleted)
    if prefix.startswith(":*:"):
        return [name for name in names if name.rpartition(":")[2].startswith(prefix[3:])]
    wanted = in_context(prefix, call.context) if prefix or call.context != DEFAULT_CONTEXT else ""
    return [name for name in names if name.startswith(wanted) and context_of(name) == context_of(wanted)]


def _subjects(registry: Registry, call: Call) -> Answer:
    only_deleted = call.flag("deletedOnly")
    names = _listed(registry, call, deleted=call.flag("deleted") or only_deleted)
    if only_deleted:
        names = [name for name in names if not registry.catalogue.versions(name)]
    return _page(names, call)


def _look_up(registry: Registry, call: Call) -> Answer:
    subject = call.subject()
    given = call.given(subject)
    return _version_fields(
        registry.look_up(subject, given, deleted=call.flag("deleted"), normalize=call.flag("normalize"))
    )


def _delete_subject(registry: Registry, call: Call) -> Answer:
    return registry.delete_subject(call.subject(), permanent=call.flag("permanent"))


def _versions(registry: Registry, call: Call) -> Answer:
    found = registry.versions(call.subject(), deleted=call.flag("deleted") or call.flag("deletedOnly"))
    return _page([one.version for one in found if one.deleted or not call.flag("deletedOnly")], call)


def _register(registry: Registry, call: Call) -> Answer:
    subject = call.subject()
    made = registry.register(subject, call.given(subject), normalize=call.flag("normalize"))
    return {"id": made.schema.id, "version": made.version, **_schema_fields(made.schema)}


def _version(registry: Registry, call: Call) -> Answer:
    found = registry.version(call.subject(), call.parts[1], deleted=call.flag("deleted"))
    return {**_version_fields(found), "schema": registry.formatted(found.schema, call.query.get("format", ""))}


def _text_of_version(registry: Registry, call: Call) -> Answer:
    found = registry.version(call.subject(), call.parts[1], deleted=call.flag("deleted"))
    return registry.formatted(found.schema, call.query.get("format", ""))


def _referenced_by(registry: Registry, call: Call) -> Answer:
    found = registry.version(call.subject(), call.parts[1])
    return registry.referrers(found.subject, found.version)


def _delete_version(registry: Registry, call: Call) -> Answer:
    return registry.delete_version(call.subject(), call.parts[1], permanent=call.flag("permanent"))


# Compatibility


def _compare(registry: Registry, call: Call) -> Answer:
    subject = call.subject()
    given = registry.parsed(call.given(subject).schema)
    level = registry.level(subject)
    if len(call.parts) > 1:
        number = version_number(call.parts[1])
        known = registry.catalogue.versions(subject)
        earlier = [registry.version(subject, call.parts[1])] if known or number != -1 else []
    else:
        earlier = registry.catalogue.versions(subject)
        if not level.is_transitive:
            earlier = earlier[-1:]
    found = registry.compare(level, given, earlier)
    return {"is_compatible": not found} | ({"messages": found} if call.flag("verbose") else {})


def _level(registry: Registry, call: Call) -> Answer:
    subject = call.subject() if call.parts else GLOBAL
    level = registry.level(subject) if call.flag("defaultToGlobal") else registry.own_level(subject)
    return {"compatibilityLevel": str(level)}


def _set_level(registry: Registry, call: Call) -> Answer:
    fields = call.fields()
    for name, value in fields.items():
        if name not in ("compatibility", "compatibilityLevel") and value not in (None, False):
            raise RegistryError(_UNPROCESSABLE, f"the config `{name[:40]}` is not supported: leave it out")
    # Under the name of the answer, too.
    level = Level.of(fields.get("compatibility") or fields.get("compatibilityLevel") or "")
    registry.set_level(call.subject() if call.parts else GLOBAL, level)
    return {"compatibility": str(level)}


def _reset_level(registry: Registry, call: Call) -> Answer:
    return {"compatibilityLevel": str(registry.reset_level(call.subject() if call.parts else GLOBAL))}


def _mode(registry: Registry, call: Call) -> Answer:
    subject = call.subject() if call.parts else GLOBAL
    return {"mode": str(registry.mode(subject) if call.flag("defaultToGlobal") else registry.own_mode(subject))}


def _set_mode(registry: Registry, call: Call) -> Answer:
    mode = Mode.of(call.fields().get("mode"))
    registry.set_mode(call.subject() if call.parts else GLOBAL, mode, force=call.flag("force"))
    return {"mode": str(mode)}


def _reset_mode(registry: Registry, call: Call) -> Answer:
    return {"mode": str(registry.reset_mode(call.subject() if call.parts else GLOBAL))}


def _page(found: list[Any], call: Call) -> list[Any]:
    """`offset` and `limit` of the query. A limit of -1 is none."""

    def number(name: str, default: int) -> int:
        text = call.query.get(name, "")
        return int(text) if text.isdecimal() and len(text) <= 10 else default

    start = number("offset", 0)
    return found[start : start + number("limit", _MOST_LISTED)]


_ROUTES: tuple[Route, ...] = (
    ("GET", "", lambda _, __: {}),
    ("GET", "schemas", _schemas),
    (
        "GET",
        "schemas/types",
        lambda _, __: [str(kind) for kind in (SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO)],
    ),
    ("GET", "schemas/ids/*", _by_id),
    ("GET", "schemas/ids/*/schema", _text_by_id),
    ("GET", "schemas/ids/*/subjects", _subjects_of_id),
    ("GET", "schemas/ids/*/versions", _versions_of_id),
    ("GET", "schemas/guids/*", _by_guid),
    ("GET", "subjects", _subjects),
    ("POST", "subjects/*", _look_up),
    ("DELETE", "subjects/*", _delete_subject),
    ("GET", "subjects/*/versions", _versions),
    ("POST", "subjects/*/versions", _register),
    ("GET", "subjects/*/versions/*", _version),
    ("DELETE", "subjects/*/versions/*", _delete_version),
    ("GET", "subjects/*/versions/*/schema", _text_of_version),
    ("GET", "subjects/*/versions/*/referencedby", _referenced_by),
    ("POST", "compatibility/subjects/*/versions", _compare),
    ("POST", "compatibility/subjects/*/versions/*", _compare),
    ("GET", "config", _level),
    ("PUT", "config", _set_level),
    ("DELETE", "config", _reset_level),
    ("GET", "config/*", _level),
    ("PUT", "config/*", _set_level),
    ("DELETE", "config/*", _reset_level),
    ("GET", "mode", _mode),
    ("PUT", "mode", _set_mode),
    ("DELETE", "mode", _reset_mode),
    ("GET", "mode/*", _mode),
    ("PUT", "mode/*", _set_mode),
    ("DELETE", "mode/*", _reset_mode),
    ("GET", "contexts", lambda registry, _: sorted({DEFAULT_CONTEXT, *registry.catalogue.contexts()})),
)
