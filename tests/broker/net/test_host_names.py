"""Names in `max.connections.per.ip.overrides`: a slow name service holds up neither start nor clients."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.host_names import HostNames
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.net.timers import Timers
from duralog.config import BrokerConfig
from tests.broker.conftest import QUICK
from tests.support.broker.admin_desk import BROKER, SET, alter
from tests.support.broker.name_service import NameService
from tests.support.broker.raw_client import RawClient
from tests.support.broker.set_clock import SetClock
from tests.support.waiting import wait_until

API_VERSIONS = 18
OVERRIDES = "max.connections.per.ip.overrides"
PER_IP = "max.connections.per.ip"
UNKNOWN = [f"host-{number}.invalid" for number in range(60)]


@pytest.fixture
def name_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameService]:
    service = NameService(monkeypatch)
    yield service
    service.is_up.set()


@pytest.fixture
def broker_config() -> dict[str, object]:
    return {PER_IP: 2}


def overrides(*names: str, count: int = 5) -> str:
    return ",".join(f"{name}:{count}" for name in names)


def set_overrides(client: RawClient, text: str) -> None:
    assert alter(client, BROKER, "", (OVERRIDES, SET, text)) == (0, None)


def is_let_in(broker: Broker, kept: ExitStack) -> bool:
    """Whether one more connection is served. It stays open."""
    client = kept.enter_context(RawClient("127.0.0.1", broker.address.port))
    try:
        return bool(client.ask(API_VERSIONS, 0).error_code == 0)
    except ConnectionError:
        return False


class TestLoop:
    def test_slow_name_lookups_do_not_block_others(
        self, name_service: NameService, connect: Callable[[], RawClient]
    ) -> None:
        name_service.is_up.clear()
        client = connect()
        set_overrides(client, overrides(*UNKNOWN))
        assert connect().ask(API_VERSIONS, 0).error_code == 0
        wait_until(lambda: bool(name_service.asked))
        assert client.ask(API_VERSIONS, 0).error_code == 0
        set_overrides(client, overrides(*UNKNOWN, "one-more.invalid"))
        assert "duralog-broker" not in name_service.threads_that_asked()
        assert threading.current_thread().name not in name_service.threads_that_asked()

    def test_nor_a_start_nor_an_end(self, name_service: NameService) -> None:
        name_service.is_up.clear()
        config = BrokerConfig.of({**QUICK, OVERRIDES: overrides(*UNKNOWN)})
        with Broker(None, config=config) as broker:
            broker.start()
            with RawClient("127.0.0.1", broker.address.port) as client:
                assert client.ask(API_VERSIONS, 0).error_code == 0
            wait_until(lambda: bool(name_service.asked))
        assert not name_service.is_up.is_set()
        assert len(name_service.asked) <= 4
        assert not name_service.threads_that_asked() & {"duralog-broker", threading.current_thread().name}

    def test_few_threads_ask(self, name_service: NameService, connect: Callable[[], RawClient]) -> None:
        name_service.is_up.clear()
        before = threading.active_count()
        set_overrides(connect(), overrides(*UNKNOWN))
        connect().ask(API_VERSIONS, 0)
        wait_until(lambda: bool(name_service.asked))
        assert threading.active_count() - before <= 4 + 4  # Those that look up names, and the broker's workers.
        name_service.is_up.set()
        wait_until(lambda: len(name_service.asked) == len(UNKNOWN))
        assert len(name_service.threads_that_asked()) <= 4


class TestLimits:
    def test_a_name_counts_once_it_is_known(self, name_service: NameService, broker: Broker) -> None:
        name_service.known["here.example"] = ["127.0.0.1", "::1"]
        name_service.is_up.clear()
        with ExitStack() as kept:
            first = kept.enter_context(RawClient("127.0.0.1", broker.address.port))
            set_overrides(first, overrides("here.example", "10.0.0.1", count=3))
            assert is_let_in(broker, kept)
            assert not is_let_in(broker, kept)
            name_service.is_up.set()
            wait_until(lambda: broker.server.limits.allowed("127.0.0.1") == 3)
            assert broker.server.limits.allowed("::1") == 3
            assert broker.server.limits.allowed("10.0.0.1") == 3
            assert broker.server.limits.allowed("10.0.0.2") == 2
            assert is_let_in(broker, kept)
            assert not is_let_in(broker, kept)

    @pytest.mark.parametrize("written", ["127.0.0.1", " 127.0.0.1 ", "localhost", "LOCALHOST", "::ffff:127.0.0.1"])
    def test_what_needs_no_name_service_counts_at_once(
        self, name_service: NameService, broker: Broker, connect: Callable[[], RawClient], written: str
    ) -> None:
        set_overrides(connect(), f"{written}: 3")
        connect().ask(API_VERSIONS, 0)
        assert broker.server.limits.allowed("127.0.0.1") == 3
        assert name_service.asked == []

    def test_ipv6_in_brackets_and_in_full(self, name_service: NameService, broker: Broker) -> None:
        broker.server.limits.follow(BrokerConfig.of({OVERRIDES: "[0:0:0:0:0:0:0:1]:3,fe80::1:4"}))
        assert broker.server.limits.allowed("::1") == 3
        assert broker.server.limits.allowed("fe80::1") == 4
        assert name_service.asked == []

    def test_of_many_names_only_some_are_resolved(
        self, name_service: NameService, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("duralog.broker.net.limits._MOST_NAMES", 3)
        broker.server.limits.follow(BrokerConfig.of({OVERRIDES: overrides(*UNKNOWN)}))
        wait_until(lambda: len(name_service.asked) == 3)
        assert sorted(name_service.names()) == UNKNOWN[:3]

    def test_counts_return_to_nothing(self, names: HostNames) -> None:
        limits = ConnectionLimits(BrokerConfig(), names)
        for host in ("a", "b", "a"):
            limits.add(host)
        for host in ("a", "a", "b"):
            limits.remove(host)
        assert limits.connections == 0
        assert not limits.by_host


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def loop(clock: SetClock) -> Loop:
    return Loop(clock)


@pytest.fixture
def names(loop: Loop) -> HostNames:
    return HostNames(loop.soon.append, loop.timers, logging.getLogger("duralog.broker"))


class Loop:
    """A loop that the test turns itself."""

    def __init__(self, clock: SetClock) -> None:
        self.timers = Timers(clock)
        self.soon: list[Callable[[], None]] = []

    def turn_until(self, is_true: Callable[[], bool]) -> None:
        def turn() -> bool:
            while self.soon:
                self.soon.pop(0)()
            self.timers.run_due(lambda work: work())
            return is_true()

        wait_until(turn)


class TestRetries:
    def test_logged_once_and_tried_again_less_and_less_often(
        self,
        name_service: NameService,
        names: HostNames,
        loop: Loop,
        clock: SetClock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        names.follow(frozenset({"a.invalid", "b.invalid"}), not_found)
        asked_at: list[float] = []
        while clock.now_ms <= 2_400_000:
            before = name_service.names().count("a.invalid")
            loop.turn_until(lambda: names._threads == 0 and not loop.soon)
            asked_at += [clock.now_ms / 1000] * (name_service.names().count("a.invalid") - before)
            clock.now_ms += 10_000
        assert asked_at[:1] == [0.0] or asked_at[0] == 30.0  # The first lookup may be over before the first turn.
        assert [second for second in asked_at if second] == [30, 90, 210, 450, 930, 1530, 2130]
        assert sorted(record.getMessage() for record in caplog.records) == [
            f"max.connections.per.ip.overrides: {name} cannot be resolved (Name or service not known):"
            " max.connections.per.ip applies to it until it can; it is tried again"
            for name in ("a.invalid", "b.invalid")
        ]

    def test_resolved_by_a_later_attempt(
        self, name_service: NameService, names: HostNames, loop: Loop, clock: SetClock
    ) -> None:
        found: list[frozenset[str]] = []
        names.follow(frozenset({"a.example"}), lambda: found.append(names.addresses("a.example")))
        loop.turn_until(lambda: names._threads == 0)
        assert names.addresses("a.example") == frozenset()
        name_service.known["a.example"] = ["10.0.0.7"]
        clock.now_ms += 30_000
        loop.turn_until(lambda: bool(found))
        assert found == [frozenset({"10.0.0.7"})]

    def test_no_answer_is_logged_too_and_counts_when_it_comes(
        self,
        name_service: NameService,
        names: HostNames,
        loop: Loop,
        clock: SetClock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        name_service.is_up.clear()
        name_service.known["slow.example"] = ["10.0.0.7"]
        names.follow(frozenset({"slow.example"}), lambda: None)
        clock.now_ms += 10_000
        loop.turn_until(lambda: bool(caplog.records))
        assert "slow.example cannot be resolved (no answer in 10 s)" in caplog.records[0].getMessage()
        name_service.is_up.set()
        loop.turn_until(lambda: names.addresses("slow.example") == frozenset({"10.0.0.7"}))
        assert len(caplog.records) == 1

    def test_names_that_are_not_wanted_any_more(
        self, name_service: NameService, names: HostNames, loop: Loop, caplog: pytest.LogCaptureFixture
    ) -> None:
        name_service.is_up.clear()
        name_service.known["here.example"] = ["127.0.0.1"]
        for turn in range(50):
            names.follow(frozenset({"here.example", *(f"h{turn}-{number}.invalid" for number in range(20))}), not_found)
        names.follow(frozenset(), not_found)
        assert len(names._queue) == 0
        name_service.is_up.set()
        loop.turn_until(lambda: names._threads == 0)
        assert names.addresses("here.example") == frozenset()
        assert caplog.records == []
        assert len(name_service.asked) <= 4

    @pytest.mark.parametrize("name", ["x" * 300, "a..b", "a\0b", "\udcff"])
    def test_what_cannot_be_a_name(self, names: HostNames, loop: Loop, name: str) -> None:
        """With the real name service, which refuses these without asking anybody."""
        names.follow(frozenset({name}), not_found)
        loop.turn_until(lambda: names._threads == 0)
        assert names.addresses(name) == frozenset()

    def test_no_room_for_a_thread(
        self,
        name_service: NameService,
        names: HostNames,
        loop: Loop,
        clock: SetClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def fail(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        name_service.known["here.example"] = ["10.0.0.7"]
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", fail)
            names.follow(frozenset({"here.example"}), lambda: None)
        clock.now_ms += 30_000
        loop.turn_until(lambda: names.addresses("here.example") == frozenset({"10.0.0.7"}))


def not_found() -> None:
    raise AssertionError("it is resolved")
