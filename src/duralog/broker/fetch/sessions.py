"""Fetch sessions: the partitions of a client, remembered between its requests.

A client's first fetch names all its partitions and gets a session. After that it sends only what has changed, and gets
only what has changed. Each request of a session has the next epoch: one out of order is refused, and the client starts
again with a full fetch. Partitions that were answered with records move to the end of the order, so that none is
starved by those before it.

The number of sessions is limited (`max.incremental.fetch.session.cache.slots`), and so is the number of all their
partitions, since a client may name any. When the cache is full, a session that was not used for two minutes is evicted,
or one that is older than that and has fewer partitions than the new one; otherwise the client gets no session, which is
always allowed. Sessions do not survive a restart: clients start again then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from duralog.broker.fetch.wanted import NO_OFFSET, FetchedPartition, Wanted
from duralog.broker.wire.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)

NO_SESSION = 0
FIRST_EPOCH = 0
"""A full fetch whose client would like a session."""
FINAL_EPOCH = -1
"""A full fetch whose client wants none, and closes the one that it names."""
_LAST_EPOCH = 2**31 - 1
_SPARED_MS = 120_000
"""A session used within this time is not evicted."""
MOST_PARTITIONS = 500_000
"""Of all sessions together, existing or not: some hundred megabytes."""

Key = tuple[str | bytes | None, int]


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class FetchSession:
    """One client's partitions, in the order in which they are read."""

    __slots__ = ("counted", "created_ms", "epoch", "session_id", "used_ms", "uses_topic_ids", "wanted")

    def __init__(self, session_id: int, wanted: dict[Key, Wanted], *, uses_topic_ids: bool, now_ms: float) -> None:
        self.session_id = session_id
        self.wanted = wanted
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(FIRST_EPOCH)
        """That of the next request."""
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.counted = len(wanted)
        """The number of partitions when they were last counted."""

    def update(self, changed: Iterable[Wanted], forgotten: Iterable[Key]) -> None:
        """Apply a request. A known partition keeps its place."""
        for one in changed:
            known = self.wanted.get(one.key)
            if known is None:
                self.wanted[one.key] = one
            else:
                known.ask_as(one)
        for key in forgotten:
            self.wanted.pop(key, None)

    def sent(self, results: Iterable[FetchedPartition]) -> None:
        """Remember the client's state after this answer."""
        for result in results:
            one = result.wanted
            remember(result)
            if result.size and (key := one.key) in self.wanted:
                self.wanted[key] = self.wanted.pop(key)


def remember(result: FetchedPartition) -> None:
    """Remember the client's state of the partition. After an error, none: it is sent again."""
    one = result.wanted
    one.sent_high_watermark = NO_OFFSET if result.error_code else result.high_watermark
    one.sent_start_offset = result.start_offset


class FetchSessions:
    """All sessions, the least recently used first."""

    def __init__(self, slots: Callable[[], int], clock: Callable[[], float]) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def take_turn(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession | int:
        """The session for its next request, or why not, as an error code."""
        session = self._sessions.get(session_id)
        if session is None:
            return FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def use(self, session: FetchSession) -> bool:
        """Advance the session to its next epoch. Returns False if it has grown too large and was closed."""
        self.partition_count += len(session.wanted) - session.counted
        session.counted = len(session.wanted)
        if self.partition_count > MOST_PARTITIONS:
            self.close(session.session_id)
            return False
        session.epoch = next_epoch(session.epoch)
        session.used_ms = self._clock()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return True

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.counted

    def let_go_of_deleted(self) -> None:
        """A session may stay long after its client has left, but it must not keep deleted logs.

        REQUIRES: `Partition.is_gone` is right for every partition.
        """
        for session in self._sessions.values():
            for one in session.wanted.values():
                if one.partition is not None and one.partition.is_gone:
                    one.partition = None

    def open(self, wanted: dict[Key, Wanted], *, uses_topic_ids: bool) -> int:
        """The id of a new session, or `NO_SESSION` if the cache is full."""
        now_ms = self._clock()
        while not self._has_room(len(wanted)):
            if not self._sessions or not self._make_room(len(wanted), now_ms):
                return NO_SESSION
        session_id = random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        self._sessions[session_id] = FetchSession(session_id, wanted, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        self.partition_count += len(wanted)
        return session_id

    def _has_room(self, partitions: int) -> bool:
        return len(self._sessions) < self._slots() and self.partition_count + partitions <= MOST_PARTITIONS

    def _make_room(self, partitions: int, now_ms: float) -> bool:
        session = next(iter(self._sessions.values()))
        if now_ms - session.used_ms <= _SPARED_MS:
            old = [one for one in self._sessions.values() if now_ms - one.created_ms > _SPARED_MS]
            if not old:
                return False
            session = min(old, key=lambda one: (len(one.wanted), one.session_id))
            if partitions <= len(session.wanted):
                return False
        self.close(session.session_id)
        return True
