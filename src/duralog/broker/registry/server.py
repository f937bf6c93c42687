"""The interface over HTTP, on threads of its own (`duralog.broker.net.http_server`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from duralog.broker.audit.recorder import Changed, Sender
from duralog.broker.net.http_hosts import LOOPBACK_NAMES, HttpHosts
from duralog.broker.net.http_server import HttpHandler, HttpServer
from duralog.broker.net.listening import WebAddress
from duralog.broker.net.log_lines import LogLines
from duralog.broker.registry.answers import STORE_ERROR, RegistryError
from duralog.broker.registry.registry import Registry
from duralog.broker.registry.routes import answer, change_of, is_change
from duralog.broker.security.web_users import Role

_NAME = "schema-registry"
_JSON = "application/vnd.schemaregistry.v1+json"
_LARGEST_BODY_BYTES = 4 << 20
_ANONYMOUS = "User:ANONYMOUS"

Record = Callable[[str, Changed, Sender], None]
"""Takes a change, or one that failed, for the audit log: the request, what it changes, and who sent it."""


def serve_registry(
    registry: Registry,
    place: WebAddress,
    advertised_hosts: Iterable[str],
    log_lines: LogLines,
    record: Record,
) -> HttpServer:
    names = HttpHosts(place.bound.host, (*LOOPBACK_NAMES, *advertised_hosts, *place.hosts))

    class Handler(_RegistryHandler):
        asked = registry
        record_change = staticmethod(record)
        hosts = names
        users = place.users

    return HttpServer(place, Handler, _NAME, log_lines)


class _RegistryHandler(HttpHandler):
    asked: Registry
    record_change: Record
    largest_body_bytes = _LARGEST_BODY_BYTES

    def respond(self) -> None:
        role = Role.CHANGE if is_change(self.command, self.path) else Role.LOOK
        if not self.is_admitted("these schemas", "--schema-registry-host", role):
            return
        try:
            answered = answer(self.asked, self.command, self.path, self.rfile.read())
            if answered.detail is not None:
                self._record(0, answered.detail)
            status, found = 200, answered.value
        except RegistryError as error:
            self._record(error.code)
            status, found = error.status, _error(error.code, str(error))
        except Exception:
            # Logged by the server. The client gets an answer, too.
            self._record(STORE_ERROR)
            self.refuse(500, "the registry failed: see its log")
            raise
        # A schema's text is answered as it is. Records of other clients may have half of a surrogate pair in it.
        text = found if isinstance(found, str) else _json(found)
        self.answer(status, _JSON, text.encode(errors="replace"))

    def _record(self, code: int, detail: str | None = None) -> None:
        """In the audit log, if the request is one for a change."""
        change = change_of(self.command, self.path)
        if change is not None:
            principal = _ANONYMOUS if self.user is None else f"User:{self.user.name}"
            sender = Sender(principal, self.client_address[0], None, _NAME)
            resource_type = "SUBJECT" if change.place else "SCHEMA_REGISTRY"
            self.record_change(change.api, Changed(resource_type, change.place or None, code, detail), sender)

    def refuse(self, status: int, sentence: str) -> None:
        self.answer(status, _JSON, json.dumps(_error(status, sentence)).encode())


def _json(found: object) -> str:
    """A list one by one, so that other threads run in between."""
    return f"[{', '.join(map(json.dumps, found))}]" if isinstance(found, list) else json.dumps(found)


def _error(code: int, message: str) -> dict[str, object]:
    return {"error_code": code, "message": message}
