"""The checker finds every anomaly that is planted in a good history, and none in a good one."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest

from tests.torture.checker import check, check_copies, counted
from tests.torture.history import History, Outcome, Reading, Transaction

LISTS = ("a", "b", "c")


def good_history(seed: int, transactions: int = 60) -> History:
    """Clients that interleave, some of whose transactions are aborted or of unknown outcome; and a slow reader."""
    chance = random.Random(seed)
    history = History()
    logs: dict[str, list[tuple[int, str]]] = {name: [] for name in LISTS}
    offsets = dict.fromkeys(LISTS, 0)
    clock = 0.0
    open_ones: dict[str, Transaction] = {}
    number = 0
    while number < transactions or open_ones:
        clock += 1
        client = f"client {chance.randrange(3)}"
        current = open_ones.get(client)
        if current is None:
            if number < transactions:
                number += 1
                open_ones[client] = Transaction(client, clock)
                history.transactions.append(open_ones[client])
            continue
        if len(current.appends) < 4 and chance.random() < 0.7:
            name = chance.choice(LISTS)
            current.appends.append((name, f"{client}/{number}/{len(current.appends)}/{clock:.0f}"))
            offsets[name] += 1 + chance.randrange(2)
            logs[name].append((offsets[name], current.appends[-1][1]))
            continue
        del open_ones[client]
        kind = chance.random()
        is_there = kind < 0.7 or kind > 0.9
        current.outcome = Outcome.COMMITTED if kind < 0.7 else Outcome.ABORTED if kind < 0.85 else Outcome.UNKNOWN
        current.ended = clock if current.outcome is not Outcome.UNKNOWN else None
        if not is_there:
            values = {value for _, value in current.appends}
            for name in LISTS:
                logs[name] = [each for each in logs[name] if each[1] not in values]
    for name, log in logs.items():
        history.readings.append(Reading("last", name, log, is_complete=True))
        history.readings.append(Reading("slow", name, log[5 : len(log) // 2]))
        begin = log[: len(log) // 2]
        history.readings.append(Reading("early", name, begin, is_from_start=True, least=len(begin)))
    return history


@pytest.mark.parametrize("seed", range(20))
def test_a_good_history_has_no_anomalies(seed: int) -> None:
    assert check(good_history(seed)) == []


def _committed(history: History, values: int = 1) -> Transaction:
    found = [each for each in history.transactions if each.outcome is Outcome.COMMITTED and len(each.appends) >= values]
    return found[len(found) // 2]


def _final(history: History, name: str) -> Reading:
    (found,) = (each for each in history.readings if each.name == name and each.is_complete)
    return found


def _remove(history: History, name: str, value: str) -> None:
    for reading in history.readings:
        if reading.name == name:
            reading.seen = [each for each in reading.seen if each[1] != value]


def lose_a_value(history: History) -> None:
    name, value = _committed(history).appends[0]
    _remove(history, name, value)


def append_twice(history: History) -> None:
    name, value = _committed(history).appends[0]
    reading = _final(history, name)
    reading.seen = [*reading.seen, (reading.seen[-1][0] + 1, value)]


def abort_what_is_there(history: History) -> None:
    _committed(history).outcome = Outcome.ABORTED


def tear_a_transaction(history: History) -> None:
    transaction = _committed(history, 2)
    transaction.outcome = Outcome.UNKNOWN
    _remove(history, *transaction.appends[0])


def invent_a_value(history: History) -> None:
    reading = _final(history, "b")
    reading.seen = [*reading.seen, (reading.seen[-1][0] + 1, "from nowhere")]


def swap_values_of_a_client(history: History) -> None:
    by_list: dict[tuple[str, str], list[str]] = {}
    for transaction in history.transactions:
        if transaction.outcome is Outcome.COMMITTED:
            for name, value in transaction.appends:
                by_list.setdefault((transaction.client, name), []).append(value)
    (_, name), values = max(by_list.items(), key=lambda each: len(each[1]))
    _swap(history, name, values[0], values[-1])


def swap_what_time_has_ordered(history: History) -> None:
    """Of two clients, one of which began when the other had committed."""
    done = [each for each in history.transactions if each.outcome is Outcome.COMMITTED and each.appends]
    for one in done:
        for other in done:
            shared = {name for name, _ in one.appends} & {name for name, _ in other.appends}
            if one.client != other.client and shared and one.ended is not None and one.ended < other.began:
                name = min(shared)
                _swap(history, name, *(next(v for n, v in each.appends if n == name) for each in (one, other)))
                return
    raise AssertionError("no such pair")


def _swap(history: History, name: str, one: str, other: str) -> None:
    names = {one: other, other: one}
    for reading in history.readings:
        if reading.name == name:
            reading.seen = [(offset, names.get(value, value)) for offset, value in reading.seen]


def show_another_value(history: History) -> None:
    reading = next(each for each in history.readings if each.reader == "slow" and len(each.seen) > 2)
    offset, _ = reading.seen[1]
    reading.seen[1] = (offset, reading.seen[0][1])


def go_back(history: History) -> None:
    reading = next(each for each in history.readings if each.reader == "slow" and len(each.seen) > 2)
    reading.seen.append(reading.seen[0])


def pass_over_a_value(history: History) -> None:
    reading = next(each for each in history.readings if each.reader == "slow" and len(each.seen) > 2)
    del reading.seen[1]


def _early(history: History) -> Reading:
    return next(each for each in history.readings if each.reader == "early" and len(each.seen) > 2)


def miss_the_first_value(history: History) -> None:
    reading = _early(history)
    reading.least = 0
    del reading.seen[0]


def miss_the_last_value(history: History) -> None:
    del _early(history).seen[-1]


def see_nothing(history: History) -> None:
    _early(history).seen.clear()


PLANTED: dict[Callable[[History], None], str] = {
    lose_a_value: "lost",
    append_twice: "duplicated",
    abort_what_is_there: "dirty",
    tear_a_transaction: "torn",
    invent_a_value: "unwritten",
    swap_values_of_a_client: "reordered",
    swap_what_time_has_ordered: "reordered",
    show_another_value: "unstable",
    go_back: "unstable",
    pass_over_a_value: "skipped",
    miss_the_first_value: "skipped",
    miss_the_last_value: "skipped",
    see_nothing: "skipped",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("seed", range(10))
def test_a_planted_anomaly_is_found(plant: Callable[[History], None], seed: int) -> None:
    history = copy.deepcopy(good_history(seed))
    plant(history)
    assert PLANTED[plant] in counted(check(history))


def test_what_cannot_be_judged_is_refused() -> None:
    twice = Transaction("c", 0, [("a", "x"), ("a", "x")], Outcome.COMMITTED, 1)
    with pytest.raises(ValueError, match="appended twice"):
        check(History([twice], [Reading("last", "a", [], is_complete=True)]))
    with pytest.raises(ValueError, match="no complete reading of"):
        check(History([Transaction("c", 0, [("a", "x")], Outcome.COMMITTED, 1)], [Reading("r", "a")]))


@pytest.mark.parametrize(
    ("copies", "found"),
    [
        (["a", "b", "c", "d"], {}),
        (["a", "b", "d"], {"lost": 1}),
        ([], {"lost": 4}),
        (["a", "b", "c", "d", "e"], {"unwritten": 1}),
        (["a", "b", "b", "c", "d"], {"duplicated": 1}),
        (["a", "c", "b", "d"], {"reordered": 1}),
        (["a", "b", "c", "a", "d"], {"duplicated": 1, "reordered": 1}),
    ],
)
def test_copies_are_all_there_once_and_in_order(copies: list[str], found: dict[str, int]) -> None:
    assert counted(list(check_copies("singles-0", ["a", "b", "c", "d"], copies))) == found
