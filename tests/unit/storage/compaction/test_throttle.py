"""The limit holds, for any size of pieces and number of threads, and costs nothing where it is not reached."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from duralog.storage.compaction.throttle import Throttle

LIMIT = 1_000_000.0


class Machine:
    """Threads that do pieces of work one after the other, on a clock that only they move."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.now_ms = 0.0
        self.throttle = Throttle(limit, lambda: int(self.now_ms))
        self.bytes_passed = 0
        self.slept_seconds = 0.0

    def run(self, threads: int, seconds: float, piece: Callable[[], int], work_ms: Callable[[int], float]) -> float:
        """Returns the bytes per second."""
        begin_ms, end_ms = self.now_ms, self.now_ms + seconds * 1000
        due = [(self.now_ms, number, 0) for number in range(threads)]
        while due[0][0] < end_ms:
            self.now_ms, number, count = heapq.heappop(due)
            naps: list[float] = []
            self.throttle.add(count, naps.append)
            self.slept_seconds += sum(naps)
            self.bytes_passed += count
            following = piece()
            heapq.heappush(due, (self.now_ms + sum(naps) * 1000 + work_ms(following), number, following))
        return self.bytes_passed * 1000 / (self.now_ms - begin_ms)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("piece_bytes", [100, 4096, 262_144, 4 << 20])
@pytest.mark.parametrize("speed", [2, 5, 1000])
def test_the_rate_is_the_limit_within_a_tenth(threads: int, piece_bytes: int, speed: int) -> None:
    """`speed`: how many times the limit all threads together would reach without it."""
    machine = Machine()
    seconds = max(10.0, 50 * threads * piece_bytes / LIMIT)
    ms_per_byte = threads * 1000 / (LIMIT * speed)
    rate = machine.run(threads, seconds, lambda: piece_bytes, lambda count: count * ms_per_byte)
    assert 0.9 * LIMIT < rate < 1.1 * LIMIT


@pytest.mark.parametrize("threads", [1, 4])
def test_the_rate_is_the_limit_for_pieces_and_work_of_all_sizes(threads: int) -> None:
    machine, chance = Machine(), random.Random(7)
    rate = machine.run(
        threads, 100, lambda: chance.choice([50, 5000, 500_000]), lambda count: count / 2000 * chance.random()
    )
    assert 0.9 * LIMIT < rate < 1.1 * LIMIT


@pytest.mark.parametrize("threads", [1, 4])
def test_work_that_is_slower_than_the_limit_does_not_wait(threads: int) -> None:
    machine = Machine()
    rate = machine.run(threads, 30, lambda: 100_000, lambda _: 110.0 * threads)
    # All threads begin at once here: the last of their first pieces is one too many for a moment.
    assert machine.slept_seconds <= 0.1
    assert rate == pytest.approx(100_000 / 0.11, rel=0.05)


def test_a_pause_is_not_followed_by_a_burst() -> None:
    machine = Machine()
    machine.run(1, 10, lambda: 10_000, lambda _: 0.1)
    machine.now_ms += 3_600_000
    machine.bytes_passed = 0
    assert machine.run(1, 5, lambda: 10_000, lambda _: 0.1) < 1.1 * LIMIT


def test_short_waits_are_put_together() -> None:
    machine = Machine()
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        machine.now_ms += seconds * 1000

    for _ in range(10_000):
        machine.throttle.add(1000, sleep)
    assert min(naps) >= 0.01
    assert sum(naps) == pytest.approx(10, rel=0.05)


def test_without_a_limit_nothing_waits() -> None:
    machine = Machine(limit=1.7976931348623157e308)
    machine.run(2, 1, lambda: 1 << 30, lambda _: 1.0)
    assert machine.slept_seconds == 0


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_nothing_could_pass_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="bytes per second"):
        Throttle(limit, lambda: 0)
