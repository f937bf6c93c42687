"""The records of a topic that a page shows, and its address, which can be shared and kept in the history.

| in the address | what it is |
|---|---|
| `where=$.amount > 10` | a condition (`duralog.filters.parsing`) |
| `from`, `to` | times, from the first up to, not including, the other |
| `partitions=0,2-5` | these only |
| `offsets=100-200`, `100-`, `-200` | of each partition, both ends included |
| `order=oldest` | the oldest first; otherwise the newest |
| `at=0:120,1:77`, `back=1` | a page from these offsets on, or before them |
| `time` | a page from this time on |
| `follow=1` | as records come |
| `open=1:77` | the record that is opened |

With a condition, a time or offsets it is a search, otherwise a page. Times are in UTC, or ages. Everything in an
address is untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from duralog.console.drawing.record_place import NotAPlace, parse_offset, parse_when
from duralog.console.facts.topic_records import Cursor, WantedRecords
from duralog.filters.parsing import parse

_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_OFFSETS = re.compile(r"([0-9]{0,19})(?:\s*(-|–|\.\.|to)\s*([0-9]{0,19}))?")
_PLACE = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class TopicPlace:
    where: str = ""
    since: str = ""
    until: str = ""
    partitions: str = ""
    offsets: str = ""
    is_oldest_first: bool = False
    at: Cursor | None = None
    is_backwards: bool = False
    time: str = ""
    is_followed: bool = False
    opened: tuple[int, int] | None = None

    @property
    def is_search(self) -> bool:
        return bool(self.where or self.since or self.until or self.offsets)

    @property
    def filters(self) -> TopicPlace:
        """Without the page in it, and without the record that is opened."""
        return replace(self, at=None, is_backwards=False, time="", is_followed=False, opened=None)

    def query(self) -> str:
        """With its question mark; empty for the newest records."""
        fields = [
            ("where", self.where),
            ("from", self.since),
            ("to", self.until),
            ("partitions", self.partitions),
            ("offsets", self.offsets),
            ("order", "oldest" if self.is_oldest_first else ""),
            ("time", self.time),
            ("at", "" if self.at is None else ",".join(f"{key}:{value}" for key, value in sorted(self.at.items()))),
            ("back", "1" if self.is_backwards else ""),
            ("follow", "1" if self.is_followed else ""),
            ("open", "" if self.opened is None else "{}:{}".format(*self.opened)),
        ]
        given = [(name, value) for name, value in fields if value]
        return f"?{urlencode(given)}" if given else ""

    def chosen(self, existing: Sequence[int]) -> tuple[int, ...]:
        """The partitions. Raises `NotAPlace` for what the topic does not have."""
        if not self.partitions:
            return tuple(existing)
        found: set[int] = set()
        for part in self.partitions.split(","):
            numbers = _RANGE.fullmatch(part.strip())
            if numbers is None:
                raise NotAPlace(f"“{self.partitions[:40]}” does not name partitions: give 0 or 0,2-5")
            low, high = int(numbers[1]), int(numbers[2] or numbers[1])
            some = {number for number in existing if low <= number <= high}
            if not some or (low not in some) or (high not in some):
                have = f"{existing[0]} to {existing[-1]}" if len(existing) > 1 else ", ".join(map(str, existing))
                raise NotAPlace(
                    f"The topic does not have the partitions “{part.strip()[:40]}”: it has {have or 'none'}"
                )
            found |= some
        return tuple(sorted(found))

    def wanted(self, topic: str, existing: Sequence[int], *, now_ms: int) -> WantedRecords:
        """Raises `NotAPlace`, and `FilterError` for the condition."""
        low, high = offset_range(self.offsets)
        return WantedRecords(
            topic=topic,
            partitions=self.chosen(existing),
            where=parse(self.where) if self.where else None,
            from_ms=parse_when(self.since, now_ms=now_ms) if self.since else None,
            before_ms=parse_when(self.until, now_ms=now_ms) if self.until else None,
            from_offset=low,
            before_offset=None if high is None else high + 1,
            newest_first=not self.is_oldest_first,
        )


def topic_place_of(query: Mapping[str, str]) -> TopicPlace:
    """Raises `NotAPlace`. The condition is not read yet."""
    given = {name: value.strip()[:_LONGEST] for name, value in query.items()}
    for name in ("from", "to", "time"):
        if given.get(name):
            parse_when(given[name], now_ms=0)
    offset_range(given.get("offsets", ""))
    place = TopicPlace(
        where=given.get("where", ""),
        since=given.get("from", ""),
        until=given.get("to", ""),
        partitions=given.get("partitions", ""),
        offsets=given.get("offsets", ""),
        is_oldest_first=given.get("order") == "oldest",
        opened=parse_topic_offset(given.get("open")),
    )
    if place.is_search:
        return place
    if given.get("follow") == "1":
        return replace(place, is_followed=True, is_oldest_first=False)
    if given.get("at"):
        return replace(place, at=_cursor(given["at"]), is_backwards=given.get("back") == "1")
    return replace(place, time=given.get("time", ""))


def offset_range(text: str) -> tuple[int | None, int | None]:
    """Both ends included; None for an open end."""
    if not text.strip():
        return None, None
    found = _OFFSETS.fullmatch(re.sub(r"[\u202f\u00a0_',]", "", text.strip()))
    if found is None or not (found[1] or found[3]):
        raise NotAPlace(f"“{text[:40]}” does not name offsets: give 100, 100-200, 100- or -200")
    low = parse_offset(found[1]) if found[1] else None
    high = parse_offset(found[3]) if found[3] else low if found[2] is None else None
    if low is not None and high is not None and high < low:
        raise NotAPlace(f"“{text[:40]}” has no offsets: the first is above the last")
    return low, high


def parse_topic_offset(text: object) -> tuple[int, int] | None:
    """`1:77`; None for anything else."""
    found = _PLACE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None or int(found[2]) > 2**63 - 1 else (int(found[1]), int(found[2]))


def _cursor(text: str) -> Cursor:
    places = [parse_topic_offset(part) for part in text.split(",")]
    if None in places:
        raise NotAPlace(f"“{text[:40]}” is not a place in a topic: it looks like 0:120,1:77")
    return dict(place for place in places if place is not None)
