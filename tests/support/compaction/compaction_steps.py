"""The steps in the life of a compacted partition, for hypothesis to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

IDEMPOTENT = (1, 2)
TRANSACTIONAL = (7, 8)


class Write(NamedTuple):
    """A batch."""

    records: Sequence[tuple[int, int, int]]
    """Key, size of the value with 0 for a delete marker, time from now."""
    codec: str | None = None
    producer_id: int = -1


class End(NamedTuple):
    """Of a transaction, open or without records here. With `bumps_epoch`, the producer continues in a new epoch."""

    producer_id: int
    commit: bool
    bumps_epoch: bool = False


class Roll(NamedTuple):
    pass


class Tick(NamedTuple):
    ms: int


class Follow(NamedTuple):
    """Let the reader that follows the log take this many records."""

    records: int


class Restart(NamedTuple):
    is_kill: bool


class Compact(NamedTuple):
    keys: int
    """How many the map has room for."""


Step = Write | End | Roll | Tick | Follow | Restart | Compact


def fewer(part: int) -> settings:
    """One of so many of the usual number of examples."""
    return settings(max_examples=max(1, settings().max_examples // part))


_values = st.sampled_from([0, 0, 1, 2, 10, 40])
_times = st.sampled_from([0, 0, 0, -300, 5, 40])
_codecs = st.sampled_from([None, None, "gzip", "snappy", "lz4", "zstd"])
_producers = st.sampled_from([-1, -1, *IDEMPOTENT, *TRANSACTIONAL, *TRANSACTIONAL])


def writes(keys: int) -> st.SearchStrategy[Write]:
    records = st.lists(st.tuples(st.integers(0, keys - 1), _values, _times), min_size=1, max_size=6)
    return st.builds(Write, records, _codecs, _producers)


def steps(keys: int = 8, *, most: int = 80) -> st.SearchStrategy[list[Step]]:
    """Of any number as likely as of any other: lists that hypothesis draws by itself are short."""
    write = writes(keys)
    chosen = st.one_of(
        write,
        write,
        write,
        write,
        write,
        st.builds(End, st.sampled_from(TRANSACTIONAL), st.booleans(), st.sampled_from([False, False, True])),
        st.builds(End, st.sampled_from(TRANSACTIONAL), st.booleans()),
        st.just(Roll()),
        st.builds(Tick, st.sampled_from([1, 100, 450, 1000])),
        st.builds(Follow, st.integers(1, 30)),
        st.builds(Restart, st.booleans()),
        st.builds(Compact, st.sampled_from([1, 2, 5, 1000, 1000, 1000])),
    )
    return st.integers(1, most).flatmap(lambda count: st.lists(chosen, min_size=count, max_size=count))
