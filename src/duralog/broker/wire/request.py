"""The input and the results of handlers. There are no sockets here: a test can call a handler directly.

A handler returns one of

- a mapping of field names to values: `messages` encodes it,
- a `RawAnswer`: the body in ready-made parts, of which a `FileSlice` goes from the file to the socket by the kernel,
- a `DelayedAnswer` (in Kafka a delayed operation): `DelayedAnswer.answer` gives it later, once, on the loop's thread,
- `Silence.NO_ANSWER`: the client expects none (Produce with acks=0), or `Silence.CLOSE`: the connection ends.

A connection has one request in progress at a time, so that answers are sent in the order of the requests.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from duralog.broker.wire.principal import ANONYMOUS, Principal

Fields = Mapping[str, Any]
"""An answer by kio's field names. What the version does not have is dropped; what is missing takes its default."""


@dataclass(frozen=True, slots=True)
class Node:
    """This broker as its clients know it: each listener has its own address."""

    node_id: int
    host: str
    port: int
    cluster_id: str
    rack: str | None


@dataclass(slots=True, eq=False)
class Request:
    """One request of a client."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Any
    """The body by its schema; None for an API that reads `body` itself."""
    body: memoryview
    """The whole body. It is only valid until the handler returns: the receive buffer is used again."""
    client_host: str = "127.0.0.1"
    node: Node | None = None
    """This broker by the address of the client's listener; None stands for the first listener."""
    principal: Principal = ANONYMOUS
    login: Any = None
    """The `SaslSession` of the connection, on a listener with SASL."""


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of a file that the kernel sends. The file object is kept until they are sent, so it stays open."""

    file: HasDescriptor
    position: int
    size: int


@dataclass(slots=True)
class RawAnswer:
    """The body after the response header, in parts: at least one, and no empty `FileSlice`."""

    parts: list[bytes | FileSlice]
    """For an API with flexible versions, the header's empty tag section is not part of it: `dispatch` writes it."""
    throttle_ms: int = 0
    """How long the client has to wait, because this answer exceeds a quota."""


class Silence(enum.Enum):
    """Answers that send nothing."""

    NO_ANSWER = "no answer"
    CLOSE = "close"


NO_ANSWER = Silence.NO_ANSWER
CLOSE = Silence.CLOSE


class DelayedAnswer:
    """An answer that is given later. Until then, nothing more is read from the connection.

    `on_disconnect`, if set, is called when the client disconnects before its answer is given; an answer after that is
    dropped. All of it happens on the loop's thread.
    """

    __slots__ = ("_amend", "_answer", "_deliver", "_refuse", "is_at_work", "is_gone", "on_disconnect", "request_bytes")

    def __init__(self, on_disconnect: Callable[[], None] | None = None) -> None:
        self.on_disconnect = on_disconnect
        self.is_gone = False
        """Whether the client has disconnected: the answer is not needed any more."""
        self.is_at_work = False
        """Whether a worker thread works on it: the client is not to blame for the memory that it holds."""
        self.request_bytes = 0
        """The memory that the request holds meanwhile; 0 if its handler counts that itself."""
        self._amend: Callable[[Fields | RawAnswer | Silence], Fields | RawAnswer | Silence] | None = None
        self._answer: Fields | RawAnswer | Silence | None = None
        self._deliver: Callable[[Fields | RawAnswer | Silence], None] | None = None
        self._refuse: Callable[[int, str | None], Fields] | None = None

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def answer(self, answer: Fields | RawAnswer | Silence) -> None:
        """Give the answer. A second one is a mistake in the handler."""
        if self._answer is not None:
            raise RuntimeError("this request has its answer already")
        if self._amend is not None:
            amend, self._amend = self._amend, None
            answer = amend(answer)
        self._answer = answer
        # The callback may hold this object. The reference cycle would keep both, and the deleted files of the answer,
        # until the next garbage collection.
        self.on_disconnect = None
        if self._deliver is not None and not self.is_gone:
            self._deliver(answer)

    def amend(self, amend: Callable[[Fields | RawAnswer | Silence], Fields | RawAnswer | Silence]) -> None:
        """Called by what stands between the handler and dispatch: change the answer before it is delivered."""
        if self._answer is not None:
            self._answer = amend(self._answer)
            return
        before = self._amend
        self._amend = amend if before is None else lambda answer: amend(before(answer))

    def refuse(self, error_code: int, message: str | None = None) -> None:
        """Answer with the API's whole error answer."""
        if self._refuse is None:
            raise RuntimeError("only a request that was dispatched can be refused")
        self.answer(self._refuse(error_code, message))

    def deliver_to(
        self,
        deliver: Callable[[Fields | RawAnswer | Silence], None],
        refuse: Callable[[int, str | None], Fields],
    ) -> None:
        """Called by dispatch: where the answer goes. One that was given before is delivered now."""
        self._deliver = deliver
        self._refuse = refuse
        if self._answer is not None and not self.is_gone:
            deliver(self._answer)

    def leave(self) -> None:
        """The client has disconnected."""
        self.is_gone = True
        on_disconnect, self.on_disconnect = self.on_disconnect, None
        if self._answer is None and on_disconnect is not None:
            on_disconnect()


Answer = Fields | RawAnswer | DelayedAnswer | Silence


Refuse = Callable[[Request, int, str | None], Fields]
"""Makes a whole error answer, with a message if the API has one: nothing of the request was done."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API of the protocol, as this broker serves it."""

    key: int
    name: str
    min_version: int
    max_version: int
    handle: Callable[..., Answer]
    """Its last parameter is the request. Those before it are the parts of the broker that it uses, by their names."""
    refuse: Refuse
    """Also for an exception in the handler."""
    parse: bool = True
    """Whether `Request.message` is wanted. If not, the handler reads `Request.body`."""
    throttled: Callable[[RawAnswer, int, int], RawAnswer] | None = None
    """Sets `throttle_time_ms` in a ready-made answer of a version. Only for an API that has such answers."""
    advertised_min_version: int | None = None
    """What ApiVersions reports, if that is less than what is served."""

    def bound_to(self, parts: object) -> Callable[[Request], Answer]:
        """The handler with what its parameters name: attributes of `parts`."""
        *names, _ = inspect.signature(self.handle).parameters
        return partial(self.handle, *(getattr(parts, name) for name in names))
