"""Writes entries for changes, failed changes, refused operations and failed log-ins to the audit log.

| field | what |
|---|---|
| `time` | UTC, with milliseconds |
| `event` | `change`, `failure` of a change, `refusal`, `login failure` or `dropped` |
| `principal`, `host`, `client_id`, `listener` | who, and from where |
| `api` | the request by Kafka's name |
| `operation` | of a refusal: the refused operation |
| `resource_type`, `resource` | with what |
| `count`, `resources` | of several failures or refusals: their number, and the names of the first resources |
| `result` | the name of Kafka's error code; `NONE` for a change that was made, `SSL_HANDSHAKE_FAILED` for TLS |
| `detail` | what was changed, or the first thing that was not, without values that may be secret |

Clients without permissions choose how many changes fail and how many operations are refused: an unknown topic id, for
one, fails and is not refused. So the failures of a request are one entry for each result and resource type, and its
refusals one for each operation and resource type. The entries for failures, for refusals and for failed log-ins are
limited, each kind for itself: 100 at once, then 10 in a second. Those beyond it are counted in a `dropped` entry.
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
_FAILURE, _REFUSAL, _LOGIN_FAILURE = "failure", "refusal", "login failure"
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


class Sender(NamedTuple):
    """Who asked for a change."""

    principal: str | None = None
    host: str | None = None
    client_id: str | None = None
    listener: str | None = None


NO_SENDER = Sender()
"""For changes of the broker's own."""


class _Several:
    """Failures or refusals of a request that are one entry."""

    __slots__ = ("count", "names")

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []

    def add(self, name: str | None) -> None:
        self.count += 1
        if name is not None and len(self.names) < _MOST_NAMES:
            self.names.append(name[:_LONGEST_NAME])

    def fields(self, resource_type: str) -> dict[str, object]:
        fields: dict[str, object] = {"resource_type": resource_type, "resource": self.names[0] if self.names else None}
        return fields if self.count == 1 else {**fields, "count": self.count, "resources": self.names}


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
    """For the loop's thread."""

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
        self._refused: dict[tuple[int, int, int], tuple[Request, _Several]] = {}
        """Refusals that are not written yet, by the identity of the request, operation and resource type."""
        self._limits = {event: _Limit(clock_ms) for event in (_FAILURE, _REFUSAL, _LOGIN_FAILURE)}

    def close(self) -> None:
        """REQUIRES: no request comes any more."""
        self._write_refused()
        self.log.close()

    def changed(self, request: Request, changes: Iterable[Changed]) -> None:
        self._write_changes(lambda event: self._entry(event, request), changes)

    def changed_itself(self, cause: str, change: Changed, sender: Sender = NO_SENDER) -> None:
        """A change without a request of Kafka's protocol: the broker's own, or one through another interface.

        `cause` is the part that needed it, or the request.
        """
        self._write_changes(lambda event: {"event": event, **sender._asdict(), "api": cause}, [change])

    def _write_changes(self, entry: Callable[[str], dict[str, object]], changes: Iterable[Changed]) -> None:
        failed: dict[tuple[str, int], tuple[_Several, str | None]] = {}
        for change in changes:
            if change.error_code == error_codes.NONE:
                fields: dict[str, object] = {"resource_type": change.resource_type, "resource": change.resource}
                self.log.write(entry(CHANGE) | fields | _result(change.error_code, change.detail))
                continue
            key = change.resource_type, change.error_code
            if key not in failed:
                failed[key] = _Several(), change.detail
            failed[key][0].add(change.resource)
        for (resource_type, error_code), (several, detail) in failed.items():
            self._write_limited(entry(_FAILURE) | several.fields(resource_type) | _result(error_code, detail))

    def refused(self, request: Request, operation: int, resource_type: int, name: str) -> None:
        if not self._refused:
            self._call_soon(self._write_refused)
        key = (id(request), operation, resource_type)
        refused = self._refused.get(key)
        if refused is None:
            refused = self._refused[key] = request, _Several()
        refused[1].add(name)

    def _write_refused(self) -> None:
        written, self._refused = self._refused, {}
        for (_, operation, resource_type), (request, refused) in written.items():
            type_name = ResourceType(resource_type).name
            entry = self._entry(_REFUSAL, request)
            entry["operation"] = Operation(operation).name
            entry |= refused.fields(type_name)
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


def _result(error_code: int, detail: str | None) -> dict[str, object]:
    fields: dict[str, object] = {"result": _NAMES.get(error_code, str(error_code))}
    return fields if detail is None else {**fields, "detail": detail}
