"""The interface over HTTP, on threads of its own (`duralog.broker.net.http_server`)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from duralog.broker.net.http_hosts import LOOPBACK_NAMES, HttpHosts
from duralog.broker.net.http_server import HttpHandler, HttpServer
from duralog.broker.net.listening import WebAddress
from duralog.broker.net.log_lines import LogLines
from duralog.broker.registry.answers import RegistryError
from duralog.broker.registry.registry import Registry
from duralog.broker.registry.routes import answer, is_change
from duralog.broker.security.web_users import Role

_JSON = "application/vnd.schemaregistry.v1+json"
_LARGEST_BODY_BYTES = 4 << 20


def serve_registry(
    registry: Registry, place: WebAddress, advertised_hosts: Iterable[str], log_lines: LogLines
) -> HttpServer:
    names = HttpHosts(place.bound.host, (*LOOPBACK_NAMES, *advertised_hosts, *place.hosts))

    class Handler(_RegistryHandler):
        asked = registry
        hosts = names
        users = place.users

    return HttpServer(place, Handler, "schema-registry", log_lines)


class _RegistryHandler(HttpHandler):
    asked: Registry
    largest_body_bytes = _LARGEST_BODY_BYTES

    def respond(self) -> None:
        role = Role.CHANGE if is_change(self.command, self.path) else Role.LOOK
        if not self.is_admitted("these schemas", "--schema-registry-host", role):
            return
        try:
            body = self.rfile.read()
            status, found = 200, answer(self.asked, self.command, self.path, body)
        except RegistryError as error:
            status, found = error.status, _error(error.code, str(error))
        except Exception:
            # Logged by the server. The client gets an answer, too.
            self.refuse(500, "the registry failed: see its log")
            raise
        # A schema's text is answered as it is. Records of other clients may have half of a surrogate pair in it.
        text = found if isinstance(found, str) else json.dumps(found)
        self.answer(status, _JSON, text.encode(errors="replace"))

    def refuse(self, status: int, sentence: str) -> None:
        self.answer(status, _JSON, json.dumps(_error(status, sentence)).encode())


def _error(code: int, message: str) -> dict[str, object]:
    return {"error_code": code, "message": message}
