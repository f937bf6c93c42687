"""What each request of the interface does, and the JSON of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from duralog import __version__
from duralog.broker.registry.answers import TOO_LARGE, UNPROCESSABLE, RegistryError
from duralog.broker.registry.call import Call
from duralog.broker.registry.levels import Level, Mode
from duralog.broker.registry.registry import Registry
from duralog.broker.registry.state import RegistryState
from duralog.schemas.registered_schema import (
    DEFAULT_CONTEXT,
    RegisteredSchema,
    SchemaType,
    SubjectVersion,
    context_of,
    in_context,
)

_MOST_CHARACTERS_LISTED = 64 << 20
"""Of one answer. A longer one is refused: clients take a list that is shorter than their limit for its end."""
_CHARACTERS_OF_A_NUMBER = 12

T = TypeVar("T")

Answer = Any
"""What becomes JSON."""


class Answered(NamedTuple):
    """By a request that may change something."""

    value: Answer
    detail: str | None = None
    """Of a change that was made, for the audit log."""


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


def by_id(registry: Registry, call: Call) -> Answer:
    context = context_of(call.query["subject"]) if call.query.get("subject") else call.context
    state = registry.state()
    found = state.by_id(call.number(), context)
    fields = {**_schema_fields(found), "schema": registry.formatted(found, call.query.get("format", ""))}
    if call.flag("fetchMaxId"):
        fields["maxId"] = max(state.catalogue.ids(context))
    return fields


def text_by_id(registry: Registry, call: Call) -> Answer:
    return registry.formatted(registry.state().by_id(call.number(), call.context), call.query.get("format", ""))


def by_guid(registry: Registry, call: Call) -> Answer:
    found = registry.state().by_guid(call.parts[0])
    return {**_schema_fields(found), "schema": registry.formatted(found, call.query.get("format", ""))}


def _uses(registry: Registry, call: Call) -> list[SubjectVersion]:
    state = registry.state()
    state.by_id(call.number(), call.context)
    return state.uses(call.number(), call.context, deleted=call.flag("deleted"))


def subjects_of_id(registry: Registry, call: Call) -> Answer:
    return _page(sorted({one.subject for one in _uses(registry, call)}), call, len)


def versions_of_id(registry: Registry, call: Call) -> Answer:
    page = _page(_uses(registry, call), call, lambda one: len(one.subject))
    return [{"subject": one.subject, "version": one.version} for one in page]


def schemas(registry: Registry, call: Call) -> Answer:
    state, deleted = registry.state(), call.flag("deleted")

    def versions() -> Iterator[SubjectVersion]:
        for subject in _listed(state, call, "", deleted=deleted):
            found = state.catalogue.versions(subject, deleted=deleted)
            yield from found[-1:] if call.flag("latestOnly") else found

    return [_version_fields(one) for one in _page(versions(), call, _characters)]


def _characters(one: SubjectVersion) -> int:
    names = sum(len(each.name) + len(each.subject) for each in one.schema.references)
    return len(one.subject) + len(one.schema.text) + names


# Subjects


def _listed(state: RegistryState, call: Call, prefix: str, *, deleted: bool) -> list[str]:
    """Those of `subjectPrefix`, or of a default. `:*:` stands for all contexts, no prefix for the default context."""
    prefix = call.query.get("subjectPrefix", prefix if call.context == DEFAULT_CONTEXT else "")
    names = state.catalogue.subjects(deleted=deleted)
    if prefix.startswith(":*:"):
        return [name for name in names if name.rpartition(":")[2].startswith(prefix[3:])]
    wanted = in_context(prefix, call.context) if prefix or call.context != DEFAULT_CONTEXT else ""
    return [name for name in names if name.startswith(wanted) and context_of(name) == context_of(wanted)]


def subjects(registry: Registry, call: Call) -> Answer:
    only_deleted = call.flag("deletedOnly")
    state = registry.state()
    names = _listed(state, call, ":*:", deleted=call.flag("deleted") or only_deleted)
    if only_deleted:
        names = [name for name in names if not state.catalogue.versions(name)]
    return _page(names, call, len)


def look_up(registry: Registry, call: Call) -> Answer:
    subject = call.subject()
    given = call.given(subject)
    return _version_fields(
        registry.look_up(subject, given, deleted=call.flag("deleted"), normalize=call.flag("normalize"))
    )


def delete_subject(registry: Registry, call: Call) -> Answered:
    permanent = call.flag("permanent")
    found = registry.delete_subject(call.subject(), permanent=permanent)
    return Answered(found, f"{len(found)} versions{_for_good(permanent)}")


def versions(registry: Registry, call: Call) -> Answer:
    found = registry.state().versions(call.subject(), deleted=call.flag("deleted") or call.flag("deletedOnly"))
    numbers = (one.version for one in found if one.deleted or not call.flag("deletedOnly"))
    return _page(numbers, call, lambda _: _CHARACTERS_OF_A_NUMBER)


def register(registry: Registry, call: Call) -> Answered:
    subject = call.subject()
    made, is_new = registry.register(subject, call.given(subject), normalize=call.flag("normalize"))
    answered = {"id": made.schema.id, "version": made.version, **_schema_fields(made.schema)}
    return Answered(answered, f"version {made.version}, id {made.schema.id}" if is_new else None)


def version(registry: Registry, call: Call) -> Answer:
    found = registry.state().version(call.subject(), call.parts[1], deleted=call.flag("deleted"))
    return {**_version_fields(found), "schema": registry.formatted(found.schema, call.query.get("format", ""))}


def text_of_version(registry: Registry, call: Call) -> Answer:
    found = registry.state().version(call.subject(), call.parts[1], deleted=call.flag("deleted"))
    return registry.formatted(found.schema, call.query.get("format", ""))


def referenced_by(registry: Registry, call: Call) -> Answer:
    state = registry.state()
    found = state.version(call.subject(), call.parts[1], deleted=True)
    referrers = state.referrers().get((found.subject, found.version), ())
    ids = sorted({one.schema.id for one in referrers if one.schema.id is not None})
    return _page(ids, call, lambda _: _CHARACTERS_OF_A_NUMBER)


def delete_version(registry: Registry, call: Call) -> Answered:
    permanent = call.flag("permanent")
    number = registry.delete_version(call.subject(), call.parts[1], permanent=permanent)
    return Answered(number, f"version {number}{_for_good(permanent)}")


def _for_good(permanent: bool) -> str:
    return " for good" if permanent else ""


# Compatibility


def compare(registry: Registry, call: Call) -> Answer:
    subject = call.subject()
    found = registry.compare(subject, call.given(subject), call.parts[1] if len(call.parts) > 1 else None)
    return {"is_compatible": not found} | ({"messages": found} if call.flag("verbose") else {})


def config(registry: Registry, call: Call) -> Answer:
    state, place = registry.state(), call.place()
    normalizes = state.is_normalized(place)
    if not call.flag("defaultToGlobal"):
        state.check_has_config(place)
        normalizes = state.normalizes.get(place, False)
    return {"compatibilityLevel": str(state.level(place))} | ({"normalize": True} if normalizes else {})


def set_config(registry: Registry, call: Call) -> Answered:
    fields = call.fields()
    normalize = fields.get("normalize")
    for name, value in fields.items():
        if name not in ("compatibility", "compatibilityLevel", "normalize") and value not in (None, False):
            raise RegistryError(UNPROCESSABLE, f"the config `{name[:40]}` is not supported: leave it out")
    if normalize is not None and not isinstance(normalize, bool):
        raise RegistryError(UNPROCESSABLE, "`normalize` is not true or false")
    # Under the name of the answer, too.
    text = fields.get("compatibility") or fields.get("compatibilityLevel")
    level = None if text is None and normalize is not None else Level.of(text)
    made = registry.set_config(call.place(), level, normalize)
    answered = {("compatibility" if name == "compatibilityLevel" else name): value for name, value in made.items()}
    return Answered(answered, ", ".join(f"{name}={value}" for name, value in answered.items()))


def reset_config(registry: Registry, call: Call) -> Answered:
    before = registry.reset_config(call.place())
    return Answered({"compatibilityLevel": str(before)}, f"was {before}")


def mode(registry: Registry, call: Call) -> Answer:
    state, place = registry.state(), call.place()
    return {"mode": str(state.mode(place) if call.flag("defaultToGlobal") else state.own_mode(place))}


def set_mode(registry: Registry, call: Call) -> Answered:
    mode = Mode.of(call.fields().get("mode"))
    registry.set_mode(call.place(), mode, force=call.flag("force"))
    return Answered({"mode": str(mode)}, str(mode))


def reset_mode(registry: Registry, call: Call) -> Answered:
    before = registry.reset_mode(call.place())
    return Answered({"mode": str(before)}, f"was {before}")


# The registry itself


def types(_: Registry, __: Call) -> Answer:
    return [str(kind) for kind in (SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO)]


def contexts(registry: Registry, _: Call) -> Answer:
    return sorted({DEFAULT_CONTEXT, *registry.state().catalogue.contexts()})


def cluster(registry: Registry, _: Call) -> Answer:
    clusters = {"kafka-cluster": registry.cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


def server_version(_: Registry, __: Call) -> Answer:
    return {"version": __version__, "commitId": ""}


def _page(found: Iterable[T], call: Call, characters: Callable[[T], int]) -> list[T]:
    """`offset` and `limit` of the query. A limit of -1 is none."""

    def number(name: str) -> int | None:
        text = call.query.get(name, "")
        return int(text) if text.isdecimal() and len(text) <= 10 else None

    start, most = number("offset") or 0, number("limit")
    page: list[T] = []
    left = _MOST_CHARACTERS_LISTED
    for one in islice(found, start, None if most is None else start + most):
        left -= characters(one)
        if left < 0:
            raise RegistryError(
                TOO_LARGE,
                f"the list has more than {_MOST_CHARACTERS_LISTED >> 20} MiB: ask for parts with `offset` and `limit`",
            )
        page.append(one)
    return page
