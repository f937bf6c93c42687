"""What goes into the audit log: entries for changes, refused operations and failed logins.

| field | what |
|---|---|
| `time` | UTC, with milliseconds |
| `event` | `change`, `refusal`, `login failure` or `dropped` |
| `principal`, `host`, `client_id`, `listener` | who, and from where |
| `api` | the request by Kafka's name |
| `operation` | of a refusal: what the principal may not do |
| `resource_type`, `resource` | with what |
| `result` | the name of Kafka's error code; `NONE` for a change that was made |
| `detail` | what was changed, without values that may be secret |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from duralog.broker.audit.log import AuditLog
from duralog.broker.wire import error_codes
from duralog.broker.wire.request import Node, Request
from duralog.storage.metadata.acls import Operation, ResourceType

_NAMES = {
    code: name
    for name, code in vars(error_codes).items()
    if name.isupper() and isinstance(code, int) and name[0] != "_"
}


class Changed(NamedTuple):
    """One change that a request asked for, and its result."""

    resource_type: str
    resource: str | None
    error_code: int
    detail: str | None = None


class AuditRecorder:
    """Any thread may use it."""

    def __init__(
        self, log: AuditLog, api_name: Callable[[Request], str], listener: Callable[[Node | None], str | None]
    ) -> None:
        self.log = log
        self._api_name = api_name
        self._listener = listener

    def changed(self, request: Request, changes: Iterable[Changed]) -> None:
        for change in changes:
            entry = self._entry("change", request)
            entry |= {"resource_type": change.resource_type, "resource": change.resource}
            entry["result"] = _NAMES.get(change.error_code, str(change.error_code))
            if change.detail is not None:
                entry["detail"] = change.detail
            self.log.write(entry)

    def refused(self, request: Request, operation: int, resource_type: int, name: str) -> None:
        entry = self._entry("refusal", request)
        entry["operation"] = Operation(operation).name
        entry |= {"resource_type": ResourceType(resource_type).name, "resource": name}
        entry["result"] = f"{ResourceType(resource_type).name}_AUTHORIZATION_FAILED"
        self.log.write(entry)

    def login_failed(self, host: str, node: Node | None, reason: str) -> None:
        """A client that could not log in. The reason names the mechanism, and no secret."""
        entry = {"event": "login failure", "principal": None, "host": host, "client_id": None}
        entry |= {"listener": self._listener(node), "result": "SASL_AUTHENTICATION_FAILED", "detail": reason}
        self.log.write(entry)

    def _entry(self, event: str, request: Request) -> dict[str, object]:
        return {
            "event": event,
            "principal": str(request.principal),
            "host": request.client_host,
            "client_id": request.client_id,
            "listener": self._listener(request.node),
            "api": self._api_name(request),
        }
