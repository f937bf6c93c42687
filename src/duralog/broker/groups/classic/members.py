"""A member of a classic group: its own data, and which of its requests wait for an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from duralog.broker.net.timers import Timer
from duralog.broker.wire.request import Fields

Protocols = Sequence[tuple[str, bytes]]
"""Names with the member's bytes for each, in order of preference. Names are unique."""

AnswerTo = Callable[[Fields], None]
"""Sends the answer to a request that waits."""

NO_ASSIGNMENT = b""


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    _: KW_ONLY
    instance_id: str | None
    """Of a static member, which may come back under another member id."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    awaiting_join: AnswerTo | None = None
    awaiting_sync: AnswerTo | None = None
    is_new: bool = False
    """It has joined, and does not know its member id yet: it cannot send heartbeats."""
    expires_ms: float = 0.0
    """By the clock of the timers: without a request until then, it is removed."""
    timer: Timer | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.awaiting_join is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.awaiting_sync is not None

    @property
    def may_be_silent(self) -> bool:
        """Whether no heartbeats can be expected, since it waits for an answer."""
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync)

    @property
    def protocol_names(self) -> list[str]:
        return [name for name, _ in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Its metadata for a protocol that it knows."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
