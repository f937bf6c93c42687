"""Fetch sessions (KIP-227): what is sent again, what is not, in which order, and who has to make way."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.fetch import sessions as fetch_sessions
from duralog.broker.fetch.sessions import FetchSessions, next_epoch
from duralog.broker.fetch.wanted import Wanted
from duralog.broker.wire import error_codes as codes
from duralog.config import BrokerConfig
from tests.support.broker.record_desk import RecordDesk, batch, records
from tests.support.broker.set_clock import SetClock
from tests.support.waiting import wait_until

_MINUTE_MS = 60_000


@pytest.fixture
def desk(idle_broker: Broker) -> RecordDesk:
    desk = RecordDesk(idle_broker)
    desk.create_topic("t", 4)
    for number in range(3):
        desk.produce_one(9, "t", batch(), partition=number)
    return desk


class Client:
    """One client with a session. `ask` sends the next request of it."""

    def __init__(self, desk: RecordDesk, version: int = 13) -> None:
        self.desk = desk
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def ask(self, offsets: dict[int, int] | None = None, **options: Any) -> dict[int, tuple[int, int]]:
        """Partition to error code and number of bytes, in the order of the answer."""
        answer = self.answer(offsets, **options)
        assert answer.error_code == 0
        return {one.partition_index: (one.error_code, len(one.records)) for one in _partitions(answer)}

    def answer(self, offsets: dict[int, int] | None = None, **options: Any) -> Any:
        asked = {"t": [{"partition": number, "fetch_offset": offset} for number, offset in (offsets or {}).items()]}
        options = {"session_id": self.session_id, "session_epoch": self.epoch, **options}
        answer = self.desk.fetched(self.version, asked if offsets else {}, **options)
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch = next_epoch(self.epoch)
        return answer


def _partitions(answer: Any) -> list[Any]:
    return [one for topic in answer.responses for one in topic.partitions]


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_only_changes_are_sent(desk: RecordDesk, version: int) -> None:
    size = len(batch())
    client = Client(desk, version)
    assert client.ask({0: 0, 1: 0, 3: 0}) == {0: (0, size), 1: (0, size), 3: (0, 0)}
    assert client.session_id > 0
    # Nothing was said, so the same records again: what a client has, it tells by its next offset.
    assert client.ask() == {0: (0, size), 1: (0, size)}
    assert client.ask({0: 1, 1: 1}) == {}
    desk.produce_one(9, "t", batch(), partition=3)
    assert client.ask() == {3: (0, size)}
    assert client.ask({3: 1}) == {}


def test_a_client_that_has_all_hears_of_other_changes(desk: RecordDesk) -> None:
    client = Client(desk)
    client.ask({0: 1, 1: 1})
    assert client.ask() == {}
    desk.broker.store.partition("t", 0).delete_records(1)
    assert client.ask() == {0: (0, 0)}
    assert client.ask() == {}
    # The end of the log moves, though this client may not read it yet.
    desk.broker.partitions.append_records("t", 1, records(b"v"), producer_id=7, producer_epoch=0)
    assert client.ask(isolation_level=1) == {1: (0, 0)}
    assert client.ask(isolation_level=1) == {}


def test_errors_are_sent_again_until_they_are_over(desk: RecordDesk) -> None:
    client = Client(desk)
    beyond = (codes.OFFSET_OUT_OF_RANGE, 0)
    assert client.ask({0: 1, 1: 99}) == {0: (0, 0), 1: beyond}
    assert client.ask() == {1: beyond}
    # After an error it is told again, although nothing has changed.
    assert client.ask({1: 1}) == {1: (0, 0)}
    assert client.ask() == {}


def test_partitions_with_records_go_to_the_end(desk: RecordDesk) -> None:
    client = Client(desk)
    client.ask({0: 1, 1: 1, 2: 1})
    desk.produce_one(9, "t", batch(), partition=0)
    assert list(client.ask()) == [0]
    for number in range(3):
        desk.produce_one(9, "t", batch(), partition=number)
    assert list(client.ask()) == [1, 2, 0]
    # Changed offsets keep their place.
    assert list(client.ask({2: 0, 1: 0})) == [1, 2, 0]
    # With room for one, each has its turn.
    turns = [list(client.ask(max_bytes=1)) for _ in range(4)]
    assert turns == [[1], [2], [0], [1]]


def test_partitions_come_and_go(desk: RecordDesk) -> None:
    client = Client(desk)
    client.ask({0: 1})
    assert client.ask({1: 1}) == {1: (0, 0)}
    for number in (0, 1):
        desk.produce_one(9, "t", batch(), partition=number)
    assert list(client.ask(forgotten={"t": [0]})) == [1]
    # A session without partitions is over.
    last = client.answer(forgotten={"t": [1]})
    assert (last.session_id, last.responses) == (0, ())
    assert len(desk.broker.fetches.sessions) == 0


def test_requests_out_of_turn(desk: RecordDesk) -> None:
    client = Client(desk)
    client.ask({0: 0})
    wrong = client.answer(session_epoch=5)
    assert (wrong.error_code, wrong.session_id, wrong.responses) == (codes.INVALID_FETCH_SESSION_EPOCH, 0, ())
    unknown = client.answer(session_id=client.session_id ^ 1)
    assert (unknown.error_code, unknown.session_id) == (codes.FETCH_SESSION_ID_NOT_FOUND, 0)
    client.version = 12
    assert client.answer().error_code == codes.FETCH_SESSION_TOPIC_ID_ERROR
    client.version = 13
    assert 0 in client.ask()


def test_the_ends_of_sessions(desk: RecordDesk) -> None:
    sessions = desk.broker.fetches.sessions
    client = Client(desk)
    client.ask({0: 0})
    old = client.session_id
    # A full fetch ends the session that it names, and begins another.
    client.epoch = 0
    client.ask({0: 0})
    assert client.session_id != old
    assert len(sessions) == 1
    last = client.answer({0: 0}, session_epoch=-1)
    assert last.session_id == 0
    assert len(sessions) == 0
    assert len(_partitions(last)) == 1


def test_an_unused_session_keeps_no_log_of_a_deleted_topic(desk: RecordDesk) -> None:
    client, broker = Client(desk), desk.broker
    client.ask({0: 0, 1: 0})
    told: list[object] = []

    def is_deleted() -> bool:
        broker.run_pending()
        return bool(told)

    (session,) = broker.fetches.sessions._sessions.values()
    assert all(one.partition is not None for one in session.wanted.values())
    broker.topics.by_name("t")
    broker.topics.delete("t", told.append)
    wait_until(is_deleted)
    assert [one.partition for one in session.wanted.values()] == [None, None]
    unknown = client.desk.fetched(13, {}, session_id=client.session_id, session_epoch=client.epoch)
    assert {one.error_code for one in _partitions(unknown)} == {codes.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_fetch_without_a_session_leaves_none(desk: RecordDesk) -> None:
    assert desk.fetched(13, {"t": [{"partition": 0, "fetch_offset": 0}]}).session_id == 0
    assert len(desk.broker.fetches.sessions) == 0


def test_a_session_may_begin_without_partitions(desk: RecordDesk) -> None:
    client = Client(desk)
    assert client.ask({}) == {}
    assert client.session_id > 0
    assert client.ask({0: 1}) == {0: (0, 0)}


def test_epochs_start_again_after_the_last() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


class TestRoom:
    """How many sessions there are, and which one makes way."""

    def _wanted(self, count: int) -> dict[Any, Wanted]:
        return {("t", number): Wanted("t", None, number, 0, 0, -1, -1) for number in range(count)}

    def _sessions(self, slots: int) -> FetchSessions:
        self.now_ms = 0
        return FetchSessions(lambda: slots, lambda: self.now_ms)

    def _open(self, sessions: FetchSessions, partitions: int = 1) -> int:
        return sessions.open(self._wanted(partitions), uses_topic_ids=True)

    def _has(self, sessions: FetchSessions, session_id: int) -> bool:
        return not isinstance(sessions.take_turn(session_id, 1, uses_topic_ids=True), int)

    def test_young_ones_stay(self) -> None:
        sessions = self._sessions(2)
        first, second = self._open(sessions), self._open(sessions)
        assert self._open(sessions, partitions=50) == 0
        assert self._has(sessions, first)
        assert self._has(sessions, second)
        assert (len(sessions), sessions.partition_count) == (2, 2)

    def test_one_that_is_not_used_goes(self) -> None:
        sessions = self._sessions(2)
        idle = self._open(sessions, partitions=50)
        used = self._open(sessions)
        self.now_ms += 2 * _MINUTE_MS
        found = sessions.take_turn(used, 1, uses_topic_ids=True)
        assert not isinstance(found, int)
        sessions.use(found)
        assert self._open(sessions) == 0
        self.now_ms += 1
        assert self._open(sessions) > 0
        assert not self._has(sessions, idle)

    def test_a_small_old_one_goes_for_a_larger_one(self) -> None:
        sessions = self._sessions(2)
        small, large = self._open(sessions, partitions=2), self._open(sessions, partitions=9)
        self.now_ms += 2 * _MINUTE_MS + 1
        for session_id in (small, large):
            found = sessions.take_turn(session_id, 1, uses_topic_ids=True)
            assert not isinstance(found, int)
            sessions.use(found)
        assert self._open(sessions, partitions=2) == 0
        assert self._open(sessions, partitions=3) > 0
        assert isinstance(sessions.take_turn(small, 2, uses_topic_ids=True), int)
        assert not isinstance(sessions.take_turn(large, 2, uses_topic_ids=True), int)

    def test_no_room_at_all(self) -> None:
        assert self._open(self._sessions(0)) == 0

    def test_partitions_are_limited_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 5)
        sessions = self._sessions(slots=9)
        first, second = self._open(sessions, 2), self._open(sessions, 3)
        assert (first > 0, second > 0, sessions.partition_count) == (True, True, 5)
        assert self._open(sessions, 1) == 0
        sessions.close(first)
        assert self._open(sessions, 2) > 0
        self.now_ms += 3 * _MINUTE_MS
        # Both must make way.
        assert self._open(sessions, 4) > 0
        assert (len(sessions), sessions.partition_count) == (1, 4)


def test_a_time_of_day_that_is_set_back_keeps_no_session_from_making_way() -> None:
    day, steady = SetClock(86_400_000), SetClock()
    config = BrokerConfig.of({"max.incremental.fetch.session.cache.slots": 1})
    with Broker(None, config=config, clock=lambda: int(day()), timer_clock=steady) as broker:
        desk = RecordDesk(broker)
        desk.create_topic("t", 1)
        first, second = Client(desk), Client(desk)
        first.ask({0: 0})
        day.now_ms = 0
        second.ask({0: 0})
        assert (first.session_id > 0, second.session_id) == (True, 0)
        steady.now_ms += 2 * _MINUTE_MS + 1
        second.epoch = 0
        second.ask({0: 0})
        assert second.session_id > 0


def test_a_session_that_grows_too_large_is_closed(desk: RecordDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 3)
    client = Client(desk)
    client.ask({0: 0, 1: 0})
    assert client.answer({2: 0, 3: 0}).error_code == codes.FETCH_SESSION_ID_NOT_FOUND
    assert desk.broker.fetches.sessions.partition_count == 0
    client.session_id = client.epoch = 0
    assert len(client.ask({0: 0, 1: 0, 2: 0})) == 3
    assert client.session_id > 0
