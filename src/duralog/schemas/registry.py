"""A schema registry's REST API: the catalogue of all subjects, or of some, fetched once at planning; and new schemas.

Confluent's registry, Karapace, Apicurio (its `ccompat` API) and Redpanda answer these requests alike. Only the standard
library is used: the answers' sizes and the time for all of them are bounded here, which a client library leaves open. A
redirect is refused, since it would carry the credentials to another host.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener
from uuid import UUID

from duralog.config.redirects import NoRedirects
from duralog.errors import SchemaError
from duralog.schemas.catalogue import MAX_CATALOGUE_BYTES, MAX_SCHEMAS, SchemaCatalogue
from duralog.schemas.registered_schema import DEFAULT_CONTEXT, RegisteredSchema, SubjectVersion, context_of, in_context
from duralog.schemas.schemas_topic import schema_from_json

MAX_ANSWER_BYTES = 64 << 20
_PAGE = 1_000
_OF_SCHEMA = ("id", "schema", "schemaType", "guid", "references")
"""What is kept of an answer: it may have anything."""
"""Schemas of one answer: what Confluent's registry gives at most."""
_ALL_CONTEXTS = "subjectPrefix=%3A%2A%3A"
"""`:*:`. Not all registries list them without it."""
_ATTEMPTS = 3
_RETRIED = {429, 500, 502, 503, 504}
_CHUNK = 1 << 16
_BOTH_WAYS = 2
"""`SHUT_RDWR`. Sockets are for the broker and the client."""
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, kw_only=True)
class RegistrySettings:
    """Where a registry is and how to log in."""

    url: str
    """`https://registry:8081`. A user and password in it are used as `username` and `password`."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """A bearer token, instead of a user and password."""
    ca_file: str | None = None
    """Certificates to trust; those of the system if not given."""
    certificate_file: str | None = None
    key_file: str | None = None
    """The client's own certificate and key, if the registry asks for one."""
    timeout_seconds: float = 10.0
    """For a connection, and for each part of an answer."""
    deadline_seconds: float = 120.0
    """For all requests of one catalogue together."""


def fetch_catalogue(settings: RegistrySettings, subjects: Sequence[str] | None = None) -> SchemaCatalogue:
    """All schemas of a registry, or those of some subjects with what they reference; raises `SchemaError`."""
    registry = _Registry(settings)
    if subjects is None:
        everything = _fetch_all(registry)
        if everything is not None:
            return everything
        subjects = registry.names(f"/subjects?deleted=true&{_ALL_CONTEXTS}")
    return _fetch_subjects(registry, subjects)


def fetch_ids(
    settings: RegistrySettings, ids: Sequence[int | UUID], catalogue: SchemaCatalogue, context: str = DEFAULT_CONTEXT
) -> SchemaCatalogue:
    """The catalogue with some more ids or GUIDs: those that were registered after it was made."""
    registry = _Registry(settings)
    found: list[RegisteredSchema] = []
    for id_ in ids:
        if isinstance(id_, UUID):
            answer = registry.get(f"/schemas/guids/{id_}")
            given: dict[str, object] = {"id": 0, "guid": str(id_)}
        else:
            subject = "" if context == DEFAULT_CONTEXT else f"?subject={quote(f':{context}:', safe='')}"
            answer = registry.get(f"/schemas/ids/{id_}{subject}")
            given = {"id": id_}
        if answer is None:
            raise SchemaError(f"schema registry {registry.name}: it has no schema {id_}")
        schema = registry.schema({**registry.as_object(answer), **given}, context)
        # What is known by its GUID alone has no id here.
        found.append(replace(schema, id=None) if isinstance(id_, UUID) else schema)
    return _with_references(registry, catalogue.merged(SchemaCatalogue((), found)), found)


def register_schema(
    settings: RegistrySettings, subject: str, schema: RegisteredSchema, *, may_create: bool = True
) -> RegisteredSchema:
    """The schema with its id under a subject; raises `SchemaError`.

    A version that does not exist yet is made, as serializers do, if the registry finds it compatible. Without
    `may_create`, it must exist.
    """
    registry = _Registry(settings)
    given = {
        "schemaType": schema.type,
        "schema": schema.text,
        "references": [asdict(reference) for reference in schema.references],
    }
    path = f"/subjects/{_quoted(subject)}"
    answer = registry.get(f"{path}/versions" if may_create else path, given)
    if answer is None:
        what = "cannot be registered" if may_create else "is not registered"
        raise SchemaError(f"schema registry {registry.name}: the schema {what} under subject {subject!r}")
    number = registry.as_object(answer).get("id")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 31:
        raise SchemaError(f"schema registry {registry.name}: it answered without the id of the schema")
    return replace(schema, id=number)


def fetch_levels(settings: RegistrySettings, subjects: Sequence[str]) -> dict[str, str]:
    """The compatibility levels that are set for some subjects, and for all others as `""`; raises `SchemaError`."""
    registry = _Registry(settings)
    found: dict[str, str] = {}
    for subject in ("", *subjects):
        answer = registry.get(f"/config/{_quoted(subject)}" if subject else "/config")
        if answer is None:
            continue
        fields = registry.as_object(answer)
        level = fields.get("compatibilityLevel") or fields.get("compatibility")
        if isinstance(level, str):
            found[subject] = level
    return found


def _fetch_all(registry: _Registry) -> SchemaCatalogue | None:
    """By listing all schemas; None if the registry has no such list."""
    living = _listed(registry, f"/schemas?{_ALL_CONTEXTS}")
    if living is None:
        return None
    everything = _listed(registry, f"/schemas?deleted=true&{_ALL_CONTEXTS}") or {}
    problems: list[str] = []
    versions: list[SubjectVersion] = []
    for (subject, version), told in {**everything, **living}.items():
        try:
            schema = registry.schema(told, context_of(subject))
        except SchemaError as error:
            # One schema of a newer type must not prevent reading the others.
            problems.append(f"subject {subject!r} version {version}: {error}")
            continue
        versions.append(SubjectVersion(subject, version, schema, (subject, version) not in living))
    return SchemaCatalogue(versions, (), problems)


def _listed(registry: _Registry, path: str) -> dict[tuple[str, int], dict[str, Any]] | None:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    size = 0
    while True:
        answer = registry.get(f"{path}&offset={len(found)}&limit={_PAGE}")
        if answer is None:
            return None
        before = len(found)
        for each in registry.as_list(answer):
            told = registry.as_object(each)
            subject, version = told.get("subject"), told.get("version")
            if not isinstance(subject, str) or not isinstance(version, int):
                raise SchemaError(f"schema registry {registry.name}: it lists a schema without subject and version")
            kept = {name: told[name] for name in _OF_SCHEMA if name in told}
            if (subject, version) not in found:
                size += sum(len(str(value)) for value in kept.values())
            found[subject, version] = kept
        if size > MAX_CATALOGUE_BYTES or len(found) > MAX_SCHEMAS:
            raise SchemaError(
                f"schema registry {registry.name}: it has more than {MAX_SCHEMAS:,} schemas, or more than"
                f" {MAX_CATALOGUE_BYTES >> 20} MiB of them; name the subjects that you need"
            )
        # One that knows no pages gives all at once, and again.
        if len(found) - before < _PAGE:
            return found


def _fetch_subjects(registry: _Registry, subjects: Sequence[str]) -> SchemaCatalogue:
    versions: list[SubjectVersion] = []
    for subject in subjects:
        path = f"/subjects/{_quoted(subject)}/versions"
        everything = registry.numbers(f"{path}?deleted=true")
        if not everything:
            raise SchemaError(f"schema registry {registry.name}: it has no subject {subject!r}")
        living = set(registry.numbers(path))
        versions += [registry.version(subject, number, number not in living) for number in everything]
    catalogue = SchemaCatalogue(versions)
    return _with_references(registry, catalogue, [each.schema for each in versions])


def _with_references(
    registry: _Registry, catalogue: SchemaCatalogue, schemas: Sequence[RegisteredSchema]
) -> SchemaCatalogue:
    """The catalogue with all that some schemas reference. The deadline bounds how much that can be."""
    known: set[tuple[str, int]] = set()
    added: list[SubjectVersion] = []
    pending = list(schemas)
    while pending:
        schema = pending.pop()
        for reference in schema.references:
            subject = in_context(reference.subject, schema.context)
            if (subject, reference.version) in known:
                continue
            known.add((subject, reference.version))
            if not any(each.version == reference.version for each in catalogue.versions(subject, deleted=True)):
                try:
                    found = registry.version(subject, reference.version, False)
                except SchemaError as error:
                    raise SchemaError(f"{error}; {schema.name} references it as {reference.name!r}") from None
                added.append(found)
                pending.append(found.schema)
    return catalogue.merged(SchemaCatalogue(added))


class _Registry:
    def __init__(self, settings: RegistrySettings) -> None:
        parts = urlsplit(settings.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SchemaError(f"{parts.scheme}://{parts.hostname}: a schema registry's address is http:// or https://")
        host = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.name = self._url
        """Without credentials: for errors."""
        self._timeout = settings.timeout_seconds
        self._deadline = time.monotonic() + settings.deadline_seconds
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        username = settings.username or (unquote(parts.username) if parts.username else None)
        password = settings.password or (unquote(parts.password) if parts.password else "")
        if settings.token is not None:
            self._headers["Authorization"] = f"Bearer {settings.token}"
        elif username is not None:
            pair = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._open: list[Any] = []
        """The sockets of the request that is being made."""
        secure = _Https(self._keep, _tls(settings)) if parts.scheme == "https" else _Http(self._keep)
        self._opener = build_opener(NoRedirects, secure)

    # Answers of one shape.

    def as_object(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise SchemaError(f"schema registry {self.name}: it answered {_shown(value)} instead of an object")
        return value

    def as_list(self, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise SchemaError(f"schema registry {self.name}: it answered {_shown(value)} instead of a list")
        return value

    def names(self, path: str) -> list[str]:
        found = self.as_list(self.get(path) or [])
        if not all(isinstance(each, str) for each in found):
            raise SchemaError(f"schema registry {self.name}: {path} does not list names")
        return found

    def numbers(self, path: str) -> list[int]:
        found = self.as_list(self.get(path) or [])
        if not all(isinstance(each, int) for each in found):
            raise SchemaError(f"schema registry {self.name}: {path} does not list numbers")
        return found

    def schema(self, told: dict[str, Any], context: str) -> RegisteredSchema:
        try:
            return schema_from_json(told, context)
        except SchemaError as error:
            raise SchemaError(
                f"schema registry {self.name}: it answered with a schema that cannot be used: {error}"
            ) from None

    def version(self, subject: str, number: int, deleted: bool) -> SubjectVersion:
        place = "latest" if number == -1 else str(number)
        answer = self.get(f"/subjects/{_quoted(subject)}/versions/{place}?deleted=true")
        if answer is None:
            raise SchemaError(f"schema registry {self.name}: subject {subject!r} version {place} is gone")
        return SubjectVersion(subject, number, self.schema(self.as_object(answer), context_of(subject)), deleted)

    # Requests.

    def get(self, path: str, body: object = None) -> object:
        """The JSON of an answer; None if there is nothing at the path. With a body, a POST: it may be sent again."""
        with self._until_deadline():
            return self._tried(path, body)

    def _tried(self, path: str, body: object) -> object:
        for attempt in range(_ATTEMPTS):
            try:
                return self._once(path, body)
            except HTTPError as error:
                with error:
                    told = _told(error)
                if error.code in (404, 405):
                    return None
                if error.code in (401, 403):
                    raise SchemaError(
                        f"schema registry {self.name}: it refused the credentials ({error.code}){told}"
                    ) from None
                problem = f"it answered {error.code} {error.reason}{told}"
                if error.code not in _RETRIED:
                    break
            except (URLError, HTTPException, OSError) as error:
                problem = f"it cannot be reached: {getattr(error, 'reason', None) or error or type(error).__name__}"
            if self._left() < 0.5 or attempt == _ATTEMPTS - 1:
                break
            time.sleep(0.1 * 2**attempt)
        raise SchemaError(f"schema registry {self.name}: {problem} ({path.partition('?')[0]})")

    def _once(self, path: str, body: object) -> object:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": _CONTENT_TYPE}
        request = Request(self._url + path, data=data, headers=headers)
        with self._opener.open(request, timeout=max(0.01, min(self._timeout, self._left()))) as answer:
            data = b"".join(self._chunks(answer.read1))
        self._left()  # It may have been cut off.
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise SchemaError(
                f"schema registry {self.name}: its answer is not JSON: {data[:60]!r}; is this a registry's address?"
            ) from None

    @contextmanager
    def _until_deadline(self) -> Iterator[None]:
        """End the connections that are made inside at the deadline: the timeout of a socket is one for each piece."""

        def end() -> None:
            for connected in self._open:
                with suppress(OSError):
                    connected.shutdown(_BOTH_WAYS)

        timer = threading.Timer(self._left(), end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._open.clear()

    def _keep(self, connected: Any) -> None:
        """Called with each socket of the HTTP client."""
        self._open.append(connected)
        self._left()

    def _chunks(self, read: Callable[[int], bytes]) -> Iterator[bytes]:
        size = 0
        while chunk := read(_CHUNK):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise SchemaError(f"schema registry {self.name}: its answer has more than {MAX_ANSWER_BYTES >> 20} MiB")
            self._left()
            yield chunk

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise SchemaError(f"schema registry {self.name}: it did not give all schemas before the deadline")
        return left


def _quoted(subject: str) -> str:
    """As a step of a path. A registry may list anything."""
    try:
        return quote(subject, safe="")
    except UnicodeEncodeError:
        raise SchemaError(f"subject {subject[:100]!r} is not Unicode text") from None


_Keep = Callable[[Any], None]


class _Http(HTTPHandler):
    def __init__(self, keep: _Keep) -> None:
        super().__init__()
        self._keep = keep

    def http_open(self, req: Request) -> Any:
        return self.do_open(_connection(HTTPConnection, self._keep), req)


class _Https(HTTPSHandler):
    def __init__(self, keep: _Keep, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._keep = keep
        self._tls = context

    def https_open(self, req: Request) -> Any:
        return self.do_open(_connection(HTTPSConnection, self._keep), req, context=self._tls)


def _connection(kind: type[HTTPConnection], keep: _Keep) -> Any:
    """Makes connections of a kind, and gives their sockets to `keep`."""

    def make(*arguments: Any, **more: Any) -> HTTPConnection:
        made = kind(*arguments, **more)
        connect = made.connect

        def connect_and_keep() -> None:
            connect()
            keep(made.sock)

        made.connect = connect_and_keep  # type: ignore[method-assign]
        return made

    return make


def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except OSError as error:
        raise SchemaError(f"the certificates for the schema registry cannot be read: {error}") from None
    return context


def _told(error: HTTPError) -> str:
    """What the registry says of its error."""
    try:
        message = json.loads(error.read(_CHUNK)).get("message")
    except (ValueError, AttributeError, RecursionError, OSError, HTTPException):
        return ""
    return f": {str(message)[:200]}" if message else ""


def _shown(value: object) -> str:
    return str(value)[:60]
