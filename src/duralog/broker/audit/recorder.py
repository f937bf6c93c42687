"""Writes entries for changes, refused operations and failed log-ins to the audit log.

| field | what |
|---|---|
| `time` | UTC, with milliseconds |
| `event` | `change`, `refusal`, `login failure` or `dropped` |
| `principal`, `host`, `client_id`, `listener` | who, and from where |
| `api` | the request by Kafka's name |
| `operation` | of a refusal: the refused operation |
| `resource_type`, `resource` | with what |
| `count`, `resources` | of a refusal of several resources: their number, and the names of the first |
| `result` | the name of Kafka's error code; `NONE` for a change that was made, `SSL_HANDSHAKE_FAILED` for TLS |
| `detail` | what was changed, without values that may be secret |

Clients without permissions choose how many operations are refused. The refusals of a request are one entry for each
operation and resource type, and the entries for refusals, as those for failed logins, are limited: 100 at once, then
10 in a second. Those beyond it are counted in a `dropped` entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from duralog.broker.audit.log import CHANGE, AuditLog
from duralog.broker.wire import error_codes
from duralog.broker.wire.request import Node, Request
from duralog.storage.metadata.acls import Operation, ResourceType

_NAMES = {
    code: name
    for name, code in vars(error_codes).items()
    if name.isupper() and isinstance(code, int) and name[0] != "_"
}
_REFUSAL, _LOGIN_FAILURE = "refusal", "login failure"
_MOST_NAMES = 5
_LONGEST_NAME = 249
"""The longest name of a topic."""
_MOST_AT_ONCE = 100
_MOST_PER_SECOND = 10


class Changed(NamedTuple):
    """One change that a request asked for, and its result."""

    resource_type: str
    resource: str | None
    error_code: int
    detail: str | None = None


class _Refused:
    """The refusals of a request, for one operation and resource type."""

    __slots__ = ("count", "names", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.count = 0
        self.names: list[str] = []


class _Limit:
    """A token bucket: a burst of entries, and then a few per second."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._left = float(_MOST_AT_ONCE)
        self._counted_ms = clock_ms()

    def takes_one(self) -> bool:
        now_ms = self._clock_ms()
        more = (now_ms - self._counted_ms) * _MOST_PER_SECOND / 1000
        self._left, self._counted_ms = min(self._left + more, _MOST_AT_ONCE), now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True


class AuditRecorder:
    """Any thread may report changes; the rest is for the loop's thread."""

    def __init__(
        self,
        log: AuditLog,
        api_name: Callable[[Request], str],
        listener: Callable[[Node | None], str | None],
        *,
        call_soon: Callable[[Callable[[], None]], None],
        clock_ms: Callable[[], float],
    ) -> None:
        """`call_soon` calls after the request at hand; `clock_ms` is a clock that is never set."""
        self.log = log
        self._api_name = api_name
        self._listener = listener
        self._call_soon = call_soon
        self._refused: dict[tuple[int, int, int], _Refused] = {}
        """Refusals that are not written yet, by the identity of the request, operation and resource type."""
        self._limits = {event: _Limit(clock_ms) for event in (_REFUSAL, _LOGIN_FAILURE)}

    def close(self) -> None:
        """REQUIRES: no request comes any more."""
        self._write_refused()
        self.log.close()

    def changed(self, request: Request, changes: Iterable[Changed]) -> None:
        for change in changes:
            entry = self._entry(CHANGE, request)
            entry |= {"resource_type": change.resource_type, "resource": change.resource}
            entry["result"] = _NAMES.get(change.error_code, str(change.error_code))
            if change.detail is not None:
                entry["detail"] = change.detail
            self.log.write(entry)

    def refused(self, request: Request, operation: int, resource_type: int, name: str) -> None:
        if not self._refused:
            self._call_soon(self._write_refused)
        key = (id(request), operation, resource_type)
        refused = self._refused.get(key)
        if refused is None:
            refused = self._refused[key] = _Refused(request)
        refused.count += 1
        if len(refused.names) < _MOST_NAMES:
            refused.names.append(name[:_LONGEST_NAME])

    def _write_refused(self) -> None:
        written, self._refused = self._refused, {}
        for (_, operation, resource_type), refused in written.items():
            type_name = ResourceType(resource_type).name
            entry = self._entry(_REFUSAL, refused.request)
            entry["operation"] = Operation(operation).name
            entry |= {"resource_type": type_name, "resource": refused.names[0]}
            if refused.count > 1:
                entry |= {"count": refused.count, "resources": refused.names}
            entry["result"] = f"{type_name}_AUTHORIZATION_FAILED"
            self._write_limited(entry)

    def _write_limited(self, entry: dict[str, object]) -> None:
        event = str(entry["event"])
        if self._limits[event].takes_one():
            self.log.write(entry)
        else:
            self.log.drop(1, f"{event} entries beyond {_MOST_PER_SECOND} per second")

    def login_failed(self, host: str, node: Node | None, result: str, reason: str) -> None:
        """A client that could not log in. The reason names the mechanism, and no secret."""
        entry: dict[str, object] = {"event": _LOGIN_FAILURE, "principal": None, "host": host, "client_id": None}
        entry |= {"listener": self._listener(node), "result": result, "detail": reason}
        self._write_limited(entry)

    def _entry(self, event: str, request: Request) -> dict[str, object]:
        return {
            "event": event,
            "principal": str(request.principal),
            "host": request.client_host,
            "client_id": request.client_id,
            "listener": self._listener(request.node),
            "api": self._api_name(request),
        }
