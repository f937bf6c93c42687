"""The errors for topics, partitions and groups that do not exist: they name what does exist, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from duralog.errors import DuralogError, UnknownTopic

_MOST_LISTED = 10
_NEAR = 0.75
"""The similarity, 0 to 1, at which one name counts as a misspelling of another: `orders` and `codecs` do not."""


def unknown_topic(where: str, topic: str, known: Collection[str]) -> UnknownTopic:
    """`there is no topic ordres in data: did you mean orders?`"""
    return UnknownTopic(f"there is no topic {topic} in {where}: {_instead(where, topic, known)}")


def unknown_partition(where: str, topic: str | None, partition: int, known: Sequence[int]) -> UnknownTopic:
    """`there is no partition 7 of orders in data: there are 0 to 3`"""
    whose = f"of {topic}" if topic is not None else "of any topic"
    numbers = sorted(known)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        there = f"{numbers[0]} to {numbers[-1]}"
    else:
        there = _listed([str(number) for number in numbers])
    return UnknownTopic(f"there is no partition {partition} {whose} in {where}: there {_is_or_are(numbers)} {there}")


def unknown_group(name: str, where: str) -> DuralogError:
    return DuralogError(f"there is no group {name} in {where}: duralog group list {where} lists all groups")


def _instead(where: str, topic: str, known: Collection[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(topic.lower(), list(by_lower), n=1, cutoff=_NEAR)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    own = sorted(name for name in known if not name.startswith("__"))
    if not own:
        return f"it has no topics. To make one: duralog topic create {where} --topic {topic}"
    if len(own) > _MOST_LISTED:
        return f"duralog topic list {where} lists all {len(own):,} topics"
    return f"there {_is_or_are(own)} {_listed(own)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_LISTED])
    return f"{shown}, ..." if len(names) > _MOST_LISTED else shown


def _is_or_are(things: Collection[object]) -> str:
    return "is only" if len(things) == 1 else "are"
