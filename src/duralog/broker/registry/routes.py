"""The paths of the interface: which of them does what, and the JSON of its answers.

A path may begin with `/contexts/:.name:`, which qualifies the subjects after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from duralog.broker.registry import requests
from duralog.broker.registry.answers import RegistryError
from duralog.broker.registry.call import Call
from duralog.broker.registry.registry import Registry
from duralog.broker.registry.requests import Answer, Answered
from duralog.schemas.registered_schema import DEFAULT_CONTEXT


class Change(NamedTuple):
    """What a request changes, for the audit log."""

    api: str
    place: str
    """A subject, a context, or nothing for the registry."""


class _Route(NamedTuple):
    method: str
    pattern: str
    handle: Callable[[Registry, Call], Answer]
    """A route that changes something returns `Answered`."""
    api: str | None = None
    """The name of a change."""
    is_read: bool = False
    """Though it is not a GET: it only looks up or compares."""


def answer(registry: Registry, method: str, target: str, body: bytes) -> Answered:
    """What a request is answered with; raises `RegistryError`."""
    found, call = _found(method, target, body)
    if found is None:
        path = _path_and_query(target)[0][:200]
        if any(_matched(route.pattern, _steps(path)[0]) is not None for route in _ROUTES):
            raise RegistryError(405, f"{method} is not a method of {path}")
        raise RegistryError(404, f"there is nothing at {path}")
    value = found.handle(registry, call)
    return value if isinstance(value, Answered) else Answered(value)


def is_change(method: str, target: str) -> bool:
    """Whether a request may change something: all but those that read, look up or compare."""
    found, _ = _found(method, target)
    return method != "GET" and (found is None or not found.is_read)


def change_of(method: str, target: str) -> Change | None:
    """None for a request that cannot change anything."""
    found, call = _found(method, target)
    return None if found is None or found.api is None else Change(found.api, call.place())


def _found(method: str, target: str, body: bytes = b"") -> tuple[_Route | None, Call]:
    path, query_text = _path_and_query(target)
    steps, context = _steps(path)
    query = {name: values[-1] for name, values in parse_qs(query_text, keep_blank_values=True).items()}
    for route in _ROUTES:
        parts = _matched(route.pattern, steps) if route.method == method else None
        if parts is not None:
            return route, Call(parts, query, body, context)
    return None, Call((), query, body, context)


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


_ROUTES = (
    _Route("GET", "", lambda _, __: {}),
    _Route("GET", "schemas", requests.schemas),
    _Route("GET", "schemas/types", requests.types),
    _Route("GET", "schemas/ids/*", requests.by_id),
    _Route("GET", "schemas/ids/*/schema", requests.text_by_id),
    _Route("GET", "schemas/ids/*/subjects", requests.subjects_of_id),
    _Route("GET", "schemas/ids/*/versions", requests.versions_of_id),
    _Route("GET", "schemas/guids/*", requests.by_guid),
    _Route("GET", "subjects", requests.subjects),
    _Route("POST", "subjects/*", requests.look_up, is_read=True),
    _Route("DELETE", "subjects/*", requests.delete_subject, "DeleteSubject"),
    _Route("GET", "subjects/*/versions", requests.versions),
    _Route("POST", "subjects/*/versions", requests.register, "RegisterSchema"),
    _Route("GET", "subjects/*/versions/*", requests.version),
    _Route("DELETE", "subjects/*/versions/*", requests.delete_version, "DeleteSchemaVersion"),
    _Route("GET", "subjects/*/versions/*/schema", requests.text_of_version),
    _Route("GET", "subjects/*/versions/*/referencedby", requests.referenced_by),
    _Route("POST", "compatibility/subjects/*/versions", requests.compare, is_read=True),
    _Route("POST", "compatibility/subjects/*/versions/*", requests.compare, is_read=True),
    *(
        route
        for path in ("", "/*")
        for route in (
            _Route("GET", f"config{path}", requests.config),
            _Route("PUT", f"config{path}", requests.set_config, "SetSchemaConfig"),
            _Route("DELETE", f"config{path}", requests.reset_config, "ResetSchemaConfig"),
            _Route("GET", f"mode{path}", requests.mode),
            _Route("PUT", f"mode{path}", requests.set_mode, "SetSchemaMode"),
            _Route("DELETE", f"mode{path}", requests.reset_mode, "ResetSchemaMode"),
        )
    ),
    _Route("GET", "contexts", requests.contexts),
    _Route("GET", "v1/metadata/id", requests.cluster),
    _Route("GET", "v1/metadata/version", requests.server_version),
)
