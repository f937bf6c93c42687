"""A client of the schema registry that says exactly what the test says."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote

from duralog.broker.broker import Broker


class RegistryClient:
    """Requests as any HTTP client makes them."""

    def __init__(self, broker: Broker) -> None:
        assert broker.schema_registry is not None
        self.address = broker.schema_registry.address

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=60)
        try:
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def get_as(self, headers: dict[str, str], path: str) -> Any:
        return self.ask("GET", path, headers=headers)[1]

    def get(self, path: str) -> Any:
        status, found = self.ask("GET", path)
        assert status == 200, found
        return found

    def register(self, subject: str, schema: Any, **more: Any) -> Any:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text, **more})


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "R") -> dict[str, Any]:
    made = [{"name": f[0], "type": f[1]} | ({"default": f[2]} if len(f) > 2 else {}) for f in fields]
    return {"type": "record", "name": name, "fields": made}
