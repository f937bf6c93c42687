"""Reset the committed offsets of consumer groups, of a directory or of a broker: makes a plan, and applies it.

The scenarios and their limits are those of Kafka's `kafka-consumer-groups --reset-offsets`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from duralog.client.unknown_names import unknown_partition, unknown_topic
from duralog.config.error_text import describe
from duralog.errors import DuralogError, InvalidConfig

Place = tuple[str, int]
"""A topic and the number of a partition."""


class ResettableGroups(Protocol):
    """The groups of a directory, or of a broker (`duralog.client.groups`)."""

    where: str
    """The directory, or the address."""

    def names(self) -> Sequence[str]: ...

    def places(self) -> Collection[Place]:
        """All partitions."""

    def ranges(self, places: Collection[Place]) -> Mapping[Place, tuple[int, int]]:
        """The start and end offsets of partitions."""

    def offsets_at(self, places: Collection[Place], timestamp_ms: int) -> Mapping[Place, int]:
        """The first offsets at or after a time, of partitions that have one."""

    def committed(self, name: str) -> Mapping[Place, int]:
        """The committed offsets of the group. Refused if the group may not be changed."""

    def set_offsets(self, name: str, offsets: Mapping[Place, int]) -> None: ...


class Where(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    """The committed offset, or the end of a partition without one."""
    OFFSET = "offset"
    SHIFT = "shift"
    """By a number of offsets from the committed one."""
    TIME = "time"
    """The first record at or after a time; the end if there is none."""
    PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTo:
    where: Where
    value: int = 0
    """The offset, the shift, or the time in milliseconds."""
    plan: Mapping[str, Mapping[Place, int]] = field(default_factory=dict)
    """By group, for `PLAN`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    groups: Sequence[str] | None
    """None for all groups."""
    topics: Mapping[str, Collection[int] | None] | None
    """The partitions of each topic, None for all of them. Without topics, all that the group has committed."""
    to: ResetTo
    execute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    topic: str
    partition: int
    before: int | None
    """None if the group had committed none."""
    after: int
    wanted: int | None = None
    """The requested offset, if it is outside of the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReset:
    group: str
    offsets: Sequence[ResetOffset] = ()
    """By topic and partition."""
    failure: str | None = None
    """Why nothing was changed. Only with several groups: for a single one, the error is raised."""


def reset_offsets(groups: ResettableGroups, request: ResetRequest) -> list[GroupReset]:
    """The plan for each group; with `execute`, it is applied. A group with members is refused."""
    names = groups.names() if request.groups is None else request.groups
    done = []
    for name in names:
        try:
            offsets = _planned(groups, name, request)
            if request.execute and offsets:
                groups.set_offsets(name, {(each.topic, each.partition): each.after for each in offsets})
            done.append(GroupReset(group=name, offsets=offsets))
        except DuralogError as error:
            if request.groups is not None and len(names) == 1:
                raise
            done.append(GroupReset(group=name, failure=describe(error)))
    return done


def _planned(groups: ResettableGroups, name: str, request: ResetRequest) -> list[ResetOffset]:
    committed = groups.committed(name)
    places = _places(groups, name, request, committed)
    ranges = groups.ranges(places) if places else {}
    wanted = _wanted(groups, name, request.to, committed, ranges)
    planned = []
    for place in places:
        start, end = ranges[place]
        offset = wanted[place]
        is_limited = request.to.where in (Where.OFFSET, Where.SHIFT, Where.PLAN)
        after = min(max(offset, start), end) if is_limited else offset
        planned.append(
            ResetOffset(
                topic=place[0],
                partition=place[1],
                before=committed.get(place),
                after=after,
                wanted=None if after == offset else offset,
            )
        )
    return planned


def _places(groups: ResettableGroups, name: str, request: ResetRequest, committed: Mapping[Place, int]) -> list[Place]:
    known = groups.places()
    if request.to.where is Where.PLAN:
        wanted: Collection[Place] = request.to.plan.get(name, {})
        if not wanted:
            raise InvalidConfig(f"the plan has no offset of group {name}")
        for topic, number in wanted:
            _check(groups, known, topic, [number])
        return sorted(wanted)
    if request.topics is None:
        return sorted(set(committed) & set(known))
    for topic, numbers in request.topics.items():
        _check(groups, known, topic, numbers or ())
    return sorted(
        (topic, number)
        for topic, number in known
        if topic in request.topics and (request.topics[topic] is None or number in (request.topics[topic] or ()))
    )


def _check(groups: ResettableGroups, known: Collection[Place], topic: str, numbers: Collection[int]) -> None:
    found = [number for name, number in known if name == topic]
    if not found:
        raise unknown_topic(groups.where, topic, {name for name, _ in known})
    for number in numbers:
        if number not in found:
            raise unknown_partition(groups.where, topic, number, found)


def _wanted(
    groups: ResettableGroups,
    name: str,
    to: ResetTo,
    committed: Mapping[Place, int],
    ranges: Mapping[Place, tuple[int, int]],
) -> Mapping[Place, int]:
    ends = {place: end for place, (_, end) in ranges.items()}
    match to.where:
        case Where.EARLIEST:
            return {place: start for place, (start, _) in ranges.items()}
        case Where.LATEST:
            return ends
        case Where.CURRENT:
            return {**ends, **committed}
        case Where.OFFSET:
            return dict.fromkeys(ranges, to.value)
        case Where.TIME:
            return {**ends, **(groups.offsets_at(ranges, to.value) if ranges else {})}
        case Where.PLAN:
            return to.plan[name]
        case Where.SHIFT:
            missing = [f"{topic}-{number}" for topic, number in ranges if (topic, number) not in committed]
            if missing:
                raise InvalidConfig(f"group {name} has no committed offset of {', '.join(missing)} to shift")
            return {place: committed[place] + to.value for place in ranges}
