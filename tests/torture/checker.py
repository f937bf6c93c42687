"""Whether a history is one that a log with transactions may have: the idea of Elle's list-append check.

Every value is appended once, so a list that is read shows which transactions took effect and in which order. The final
readings are compared with what clients were told, and every other reading with the final ones:

| anomaly | what happened |
|---|---|
| lost | a value of a committed transaction is not in its list |
| duplicated | a value is in its list twice |
| dirty | a value of an aborted transaction was read |
| torn | some values of a transaction took effect, others did not |
| unwritten | a value was read that was never appended to this list |
| reordered | values of one client, or of transactions of which one ended before the other began, are in another order |
| unstable | a reader saw something else at an offset than the final reading, or went back |
| skipped | a reader passed over a value that is in the list, or read too few |

Concurrent transactions of different clients may interleave: a log promises no more.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.torture.history import History, Outcome, Reading, Transaction


class Anomaly(NamedTuple):
    kind: str
    what: str


def check(history: History) -> list[Anomaly]:
    """All anomalies. REQUIRES: a complete reading of each list that was appended to."""
    return list(_anomalies(history))


def _anomalies(history: History) -> Iterator[Anomaly]:
    writers: dict[tuple[str, str], Transaction] = {}
    for transaction in history.transactions:
        for append in transaction.appends:
            if append in writers:
                raise ValueError(f"{append} is appended twice in this history: nothing can be told of it")
            writers[append] = transaction
    final = {reading.name: reading for reading in history.readings if reading.is_complete}
    missing = {name for name, _ in writers} - final.keys()
    if missing:
        raise ValueError(f"there is no complete reading of {sorted(missing)}")
    for reading in final.values():
        yield from _of_list(reading, writers)
    places = {(name, value): offset for name, reading in final.items() for offset, value in reading.seen}
    for transaction in history.transactions:
        yield from _of_transaction(transaction, places)
    yield from _of_clients(history.transactions, places)
    for name in final:
        yield from _of_real_time(name, history.transactions, places)
    for reading in history.readings:
        yield from _of_reading(reading, final.get(reading.name), writers)


def _of_list(reading: Reading, writers: dict[tuple[str, str], Transaction]) -> Iterator[Anomaly]:
    for value, count in Counter(value for _, value in reading.seen).items():
        if count > 1:
            yield Anomaly("duplicated", f"{value} is in {reading.name} {count} times")
        if (reading.name, value) not in writers:
            yield Anomaly("unwritten", f"{value} in {reading.name} was never appended")


def _of_transaction(transaction: Transaction, places: dict[tuple[str, str], int]) -> Iterator[Anomaly]:
    absent = [append for append in transaction.appends if append not in places]
    if transaction.outcome is Outcome.COMMITTED:
        for name, value in absent:
            yield Anomaly("lost", f"{value} of {transaction.client} is not in {name}")
    elif transaction.outcome is Outcome.UNKNOWN and 0 < len(absent) < len(transaction.appends):
        present = [append for append in transaction.appends if append in places]
        yield Anomaly("torn", f"of a transaction of {transaction.client}, {present} are there, {absent} are not")


def _of_clients(transactions: list[Transaction], places: dict[tuple[str, str], int]) -> Iterator[Anomaly]:
    """The order of one client's values in each list."""
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for transaction in transactions:
        for name, value in transaction.appends:
            offset = places.get((name, value))
            if offset is None:
                continue
            before = last.get((transaction.client, name))
            if before is not None and before[0] > offset:
                yield Anomaly("reordered", f"{value} of {transaction.client} is before {before[1]} in {name}")
            last[transaction.client, name] = (offset, value)


def _of_real_time(name: str, transactions: list[Transaction], places: dict[tuple[str, str], int]) -> Iterator[Anomaly]:
    """What began after a commit was known comes after what that committed."""
    ended: list[tuple[float, int, str]] = []
    for transaction in transactions:
        if transaction.outcome is Outcome.COMMITTED and transaction.ended is not None:
            offsets = [
                (places[name, value], value)
                for to, value in transaction.appends
                if (to, value) in places and to == name
            ]
            if offsets:
                ended.append((transaction.ended, *max(offsets)))
    ended.sort()
    times = [time for time, _, _ in ended]
    highest: list[tuple[int, str]] = []
    for _, offset, value in ended:
        highest.append(max((offset, value), highest[-1]) if highest else (offset, value))
    for transaction in transactions:
        earlier = bisect_left(times, transaction.began)
        if not earlier:
            continue
        offset_before, value_before = highest[earlier - 1]
        for to, value in transaction.appends:
            if to == name and places.get((to, value), offset_before) < offset_before:
                yield Anomaly(
                    "reordered", f"{value} began after {value_before} was committed, and is before it in {name}"
                )


def _of_reading(
    reading: Reading, final: Reading | None, writers: dict[tuple[str, str], Transaction]
) -> Iterator[Anomaly]:
    for _, value in reading.seen:
        writer = writers.get((reading.name, value))
        if writer is not None and writer.outcome is Outcome.ABORTED:
            yield Anomaly("dirty", f"{reading.reader} read {value} of an aborted transaction in {reading.name}")
    offsets = [offset for offset, _ in reading.seen]
    if any(after <= before for before, after in itertools.pairwise(offsets)):
        yield Anomaly("unstable", f"{reading.reader} went back in {reading.name}")
        return
    if final is None or reading is final:
        return
    expected = dict(final.seen)
    for offset, value in reading.seen:
        if expected.get(offset) != value:
            found = expected.get(offset, "nothing")
            yield Anomaly("unstable", f"{reading.reader} read {value} at {reading.name} {offset}; in the end: {found}")
    if len(offsets) < reading.least:
        what = f"{reading.reader} read {len(offsets)} values of {reading.name}, at least {reading.least} were there"
        yield Anomaly("skipped", what)
    if offsets:
        places = [offset for offset, _ in final.seen]
        first = 0 if reading.is_from_start else bisect_left(places, offsets[0])
        passed = places[first : bisect_right(places, offsets[-1])]
        for offset in sorted(set(passed) - set(offsets)):
            yield Anomaly("skipped", f"{reading.reader} passed over {expected[offset]} at {reading.name} {offset}")


def check_copies(name: str, values: list[str], copies: list[str]) -> Iterator[Anomaly]:
    """Each value of a list is copied once, in the order of the list."""
    counts = Counter(copies)
    wanted = set(values)
    for value in values:
        if value not in counts:
            yield Anomaly("lost", f"{value} of {name} was not copied")
    for value, count in counts.items():
        if value not in wanted:
            yield Anomaly("unwritten", f"{value} is a copy of nothing in {name}")
        elif count > 1:
            yield Anomaly("duplicated", f"{value} of {name} was copied {count} times")
    places = {value: number for number, value in enumerate(values)}
    known = [value for value in copies if value in places]
    for before, after in itertools.pairwise(known):
        if places[after] < places[before]:
            yield Anomaly("reordered", f"{after} is before {before} in {name}, and was copied after it")


def counted(anomalies: list[Anomaly]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for anomaly in anomalies:
        counts[anomaly.kind] += 1
    return dict(counts)
