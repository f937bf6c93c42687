"""The parts of the loop without clients: timers, work from other threads, worker threads, log lines."""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duralog.broker.net.event_loop import EventLoop
from duralog.broker.net.log_lines import LogLines, error_text, one_line
from duralog.broker.net.timers import Timer, Timers
from duralog.broker.net.workers import Workers
from duralog.broker.wire.request import DelayedAnswer
from tests.support.broker.set_clock import SetClock

SECONDS = 40.0


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def loop(clock: SetClock) -> Iterator[EventLoop]:
    loop = EventLoop(logging.getLogger("duralog.broker"), clock)
    yield loop
    loop.close()


class TestTimers:
    def test_in_order_and_not_before_their_time(self, clock: SetClock) -> None:
        timers = Timers(clock)
        done: list[str] = []
        for delay, name in ((30, "c"), (10, "a"), (20, "b"), (10, "a2"), (0, "now"), (-5, "now too")):
            timers.after(delay, lambda name=name: done.append(name))  # type: ignore[misc]
        run(timers)
        assert done == ["now", "now too"]
        clock.now_ms = 19.9
        run(timers)
        assert done == ["now", "now too", "a", "a2"]
        clock.now_ms = 1000
        run(timers)
        assert done[4:] == ["b", "c"]
        assert len(timers) == 0

    def test_a_cancelled_timer_does_nothing(self, clock: SetClock) -> None:
        timers = Timers(clock)
        done: list[int] = []
        timer = timers.after(5, lambda: done.append(1))
        timer.cancel()
        timer.cancel()
        clock.now_ms = 10
        run(timers)
        assert not done
        assert not timer.is_active
        assert len(timers) == 0

    def test_cancelled_by_another_that_is_due_at_the_same_time(self, clock: SetClock) -> None:
        timers = Timers(clock)
        done: list[int] = []
        timers.after(5, lambda: second.cancel())
        second = timers.after(5, lambda: done.append(2))
        clock.now_ms = 5
        run(timers)
        assert not done
        assert len(timers) == 0

    def test_what_is_added_meanwhile_waits(self, clock: SetClock) -> None:
        timers = Timers(clock)
        count = 0

        def again() -> None:
            nonlocal count
            count += 1
            timers.after(0, again)

        timers.after(0, again)
        for turn in range(1, 4):
            run(timers)
            assert count == turn

    def test_cancelled_timers_take_no_memory(self, clock: SetClock) -> None:
        timers = Timers(clock)
        kept = [timers.after(1000, lambda: None) for _ in range(10)]
        for _ in range(10_000):
            timers.after(60_000, lambda: None).cancel()
        assert len(timers) == len(kept)
        assert len(timers._heap) < 200

    def test_against_a_plain_model(self, clock: SetClock) -> None:
        rng = random.Random(7)
        timers = Timers(clock)
        done: list[int] = []
        waiting: dict[int, tuple[float, Timer]] = {}
        for number in range(3000):
            action = rng.random()
            if action < 0.5:
                due = clock.now_ms + rng.randrange(50)
                waiting[number] = (due, timers.after(due - clock.now_ms, lambda number=number: done.append(number)))  # type: ignore[misc]
            elif action < 0.8 and waiting:
                waiting.pop(rng.choice(list(waiting)))[1].cancel()
            else:
                clock.now_ms += rng.randrange(10)
                expected = sorted((due, each) for each, (due, _) in waiting.items() if due <= clock.now_ms)
                done.clear()
                run(timers)
                assert done == [each for _, each in expected]
                for each in done:
                    del waiting[each]
            assert len(timers) == len(waiting)

    def test_how_long_nothing_is_due(self, clock: SetClock) -> None:
        timers = Timers(clock)
        assert timers.seconds_to_next(60) == 60
        timers.after(1500, lambda: None)
        assert timers.seconds_to_next(60) == 1.5
        assert timers.seconds_to_next(1) == 1
        clock.now_ms = 2000
        assert timers.seconds_to_next(60) == 0


def run(timers: Timers) -> None:
    timers.run_due(lambda work: work())


class TestLoop:
    def test_work_runs_in_order_and_what_it_asks_for_in_the_next_turn(self, loop: EventLoop) -> None:
        done: list[int] = []
        loop.call_soon(lambda: done.append(1))
        loop.call_soon(lambda: loop.call_soon(lambda: done.append(3)))
        loop.call_soon(lambda: done.append(2))
        loop.run_turn(0)
        assert done == [1, 2]
        loop.run_turn(0)
        assert done == [1, 2, 3]

    def test_an_exception_ends_its_work_only(self, loop: EventLoop, caplog: pytest.LogCaptureFixture) -> None:
        done: list[int] = []
        loop.call_soon(lambda: [][0])
        loop.call_soon(lambda: done.append(1))
        loop.timers.after(0, lambda: [][1])
        loop.timers.after(0, lambda: done.append(2))
        loop.run_turn(0)
        assert done == [1, 2]
        assert len(caplog.records) == 2
        assert all("test_loop:" in record.getMessage() for record in caplog.records)

    def test_a_socket_that_cannot_be_closed_keeps_no_other_open(
        self, loop: EventLoop, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Stubborn(socket.socket):
            def close(self) -> None:
                super().close()
                raise OSError(errno.EIO, "no")

        stubborn, other = Stubborn(), socket.socket()
        for each in (stubborn, other):
            loop.watch(each.fileno(), 0, lambda _: None)
            loop.forget(each)
        loop.run_turn(0)
        assert other.fileno() == -1
        assert [record.getMessage()[:19] for record in caplog.records] == ["unexpected: OSError"]

    def test_other_threads_wake_it(self) -> None:
        loop = EventLoop(logging.getLogger("duralog.broker"))
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            for _ in range(2000):
                done = threading.Event()
                loop.call_soon(done.set)
                # Were a wake-up lost, this would take up to a minute.
                assert done.wait(SECONDS)
        finally:
            loop.stop()
            thread.join(SECONDS)
            loop.close()
        assert not thread.is_alive()

    def test_it_is_not_closed_while_another_thread_wakes_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The loop may see the work before it is woken, and end by it: its descriptor may be another's by then."""
        loop = EventLoop(logging.getLogger("duralog.broker"))
        closing = threading.Thread(target=loop.close)
        write = os.eventfd_write

        def write_late(descriptor: int, value: int) -> None:
            closing.start()
            closing.join(0.05)
            write(descriptor, value)

        monkeypatch.setattr(os, "eventfd_write", write_late)
        loop._is_polling = True
        loop.call_soon(lambda: None)
        closing.join(SECONDS)
        assert not closing.is_alive()
        loop._is_woken = False
        loop.call_soon(lambda: None)


class TestWorkers:
    def test_results_and_errors_are_delivered_on_the_loop(self, loop: EventLoop) -> None:
        workers = Workers(loop.call_soon)
        told: list[tuple[Any, str]] = []

        def then(result: Any, error: Exception | None) -> None:
            told.append((result, repr(error)))

        workers.submit(lambda: 5, then)
        workers.submit(lambda: [][0], then)
        workers.close()
        loop.run_turn(0)
        assert sorted(told, key=repr) == [(5, "None"), (None, "IndexError('list index out of range')")]

    def test_there_are_few_threads_and_all_work_is_done(self, loop: EventLoop) -> None:
        before = set(threading.enumerate())
        workers = Workers(loop.call_soon)
        names: list[str] = []
        for _ in range(100):
            workers.submit(lambda: threading.current_thread().name, lambda name, _: names.append(name))
        workers.close()
        loop.run_turn(0)
        assert len(names) == 100
        assert len(set(names)) <= 4
        left = set(threading.enumerate()) - before
        assert not [thread for thread in left if thread.name.startswith("duralog-worker")]

    def test_where_no_thread_can_be_started_those_that_are_there_do_the_work(
        self, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_room(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        workers = Workers(loop.call_soon)
        told: list[Any] = []
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", no_room)
            with pytest.raises(RuntimeError, match="new thread"):
                workers.submit(lambda: 0, lambda *_: None)
        workers.submit(lambda: 1, lambda result, _: told.append(result))
        monkeypatch.setattr(threading.Thread, "start", no_room)
        for number in (2, 3):
            workers.submit(lambda number=number: number, lambda result, _: told.append(result))  # type: ignore[misc]
        workers.close()
        loop.run_turn(0)
        assert told == [1, 2, 3]

    def test_every_result_of_work_is_delivered(self, loop: EventLoop) -> None:
        class Panic(BaseException):
            """As a native library raises it."""

        def panic() -> None:
            raise Panic("at line 7")

        workers = Workers(loop.call_soon)
        told: list[object] = []
        workers.submit(panic, lambda _, error: told.append(error))
        workers.submit(lambda: 5, lambda result, _: told.append(result))
        workers.close()
        loop.run_turn(0)
        assert sorted(str(each)[:16] for each in told) == ["5", "Panic: at line 7"]
        assert any(isinstance(each, Exception) for each in told)


class TestLater:
    def test_refused_with_the_apis_own_answer(self) -> None:
        delivered: list[object] = []
        later = DelayedAnswer()
        later.deliver_to(delivered.append, lambda code, message: {"code": code, "message": message})
        later.refuse(42, "why")
        assert delivered == [{"code": 42, "message": "why"}]

    def test_a_disconnected_client_gets_no_answer(self) -> None:
        delivered: list[object] = []
        left: list[bool] = []
        later = DelayedAnswer(lambda: left.append(True))
        later.deliver_to(delivered.append, lambda _, __: {})
        later.leave()
        later.answer({})
        assert (delivered, left, later.is_gone, later.is_answered) == ([], [True], True, True)

    def test_leaving_after_the_answer_is_no_news(self) -> None:
        left: list[bool] = []
        later = DelayedAnswer(lambda: left.append(True))
        later.deliver_to(lambda _: None, lambda _, __: {})
        later.answer({})
        later.leave()
        assert not left

    def test_it_cannot_be_refused_before_it_is_dispatched(self) -> None:
        with pytest.raises(RuntimeError):
            DelayedAnswer().refuse(1)


class TestLogLines:
    def test_one_for_each_kind_and_interval(self, clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
        log = LogLines(logging.getLogger("duralog.broker"), clock)
        for _ in range(5):
            log.warn("a", "first")
        log.warn("b", "other")
        clock.now_ms = 9999
        log.warn("a", "still silent")
        clock.now_ms = 10_000
        log.warn("a", "second")
        clock.now_ms = 20_000
        log.warn("a", "third")
        assert [record.getMessage() for record in caplog.records] == [
            "first",
            "other",
            "second (and 5 more like it before)",
            "third",
        ]

    @pytest.mark.parametrize(
        ("text", "line"),
        [("plain", "plain"), ("a\nb\x1b[0m\u2028", "a\\nb\\x1b[0m\\u2028"), ("x" * 600, "x" * 500 + "...")],
    )
    def test_texts_of_clients_stay_on_one_line(self, text: str, line: str) -> None:
        assert one_line(text) == line

    def test_an_error_names_its_origin(self) -> None:
        def fail(work: Callable[[], object]) -> str:
            try:
                work()
            except Exception as error:
                return error_text(error)
            return ""

        assert fail(lambda: [][0]).startswith("IndexError: list index out of range at ")
        assert "test_loop:" in fail(lambda: [][0])
