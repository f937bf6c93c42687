"""The forms for consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from duralog.config.times import format_time, parse_duration_ago
from duralog.console.changes.change import Change, WrongInput
from duralog.console.changes.forms import Field, Form, Values, number_of, partitions_of
from duralog.console.changes.groups import DeleteGroup, ResetGroup
from duralog.operations.groups.reset_offsets import ResetTo, Where

_INT64_MAX = 2**63 - 1
_ALL_TOPICS = ""
_EARLIEST, _LATEST, _OFFSET, _SHIFT, _DURATION, _TIME = (
    *("to-earliest", "to-latest", "to-offset", "shift-by", "by-duration", "to-datetime"),
)
_SCENARIOS = (
    (_EARLIEST, "the first record"),
    (_LATEST, "the end: skip everything"),
    (_OFFSET, "an offset"),
    (_SHIFT, "a number of offsets forward or back"),
    (_DURATION, "a time ago"),
    (_TIME, "a date and time"),
)
_EVICT = Field(
    name="evict",
    label="Remove members that have not left the group",
    kind="check",
    about="The directory lists the members at the last write. Running consumers join again.",
)


def reset_group_form(
    group: str,
    topics: Mapping[str, Sequence[int]],
    *,
    committed: Sequence[str],
    is_directory: bool,
    parse_when: Callable[[str], int],
    now_ms: Callable[[], int],
) -> Form:
    """`topics` are all topics to choose from, with their partitions; `committed` those with committed offsets of the
    group.

    `parse_when` reads a date and time in the zone of the reader. Raises `ValueError`.
    """
    offered = [
        *sorted(committed),
        *sorted(name for name in topics if name not in committed and not name.startswith("__")),
    ]

    def read(values: Values) -> Change:
        chosen = None
        if values["topic"] != _ALL_TOPICS:
            chosen = {values["topic"]: partitions_of(values, "partitions", topics.get(values["topic"], ()))}
        to, option = _scenario(values, parse_when, now_ms)
        return ResetGroup(group=group, topics=chosen, to=to, option=option, evicts=values.get("evict") == "on")

    one_topic = ("topic", tuple(offered))
    return Form(
        title=f"Reset the offsets of {group}",
        verb="Reset offsets",
        about="The group must have no members. Nothing is changed before the next step.",
        fields=(
            Field(
                name="topic",
                label="Topics",
                kind="select",
                value=_ALL_TOPICS,
                choices=((_ALL_TOPICS, "all with committed offsets"), *((name, name) for name in offered)),
            ),
            Field(name="partitions", label="Partitions", placeholder="all, or 0,2,5-7", when=one_topic),
            Field(name="to", label="To", kind="select", value=_EARLIEST, choices=_SCENARIOS),
            Field(name="offset", label="Offset", placeholder="0", when=("to", (_OFFSET,))),
            Field(name="shift", label="Shift by", placeholder="-100", when=("to", (_SHIFT,)), about="Negative: back."),
            Field(
                name="duration",
                label="How long ago",
                placeholder="2h",
                when=("to", (_DURATION,)),
                about="An age such as 30m, 2h, 7d, or a duration such as P1DT2H30M.",
            ),
            Field(
                name="time",
                label="Date and time",
                placeholder="2026-01-31T12:00",
                when=("to", (_TIME,)),
                about="In your time zone, unless it names one. The first record at or after it.",
            ),
            *((_EVICT,) if is_directory else ()),
        ),
        read=read,
    )


def delete_group_form(group: str, *, is_directory: bool) -> Form:
    def read(values: Values) -> Change:
        return DeleteGroup(group=group, evicts=values.get("evict") == "on")

    return Form(
        title=f"Delete group {group}",
        verb="Delete group",
        about="Its committed offsets are lost: consumers that come back start by their auto.offset.reset.",
        fields=(_EVICT,) if is_directory else (),
        read=read,
        is_harmful=True,
        leads_to="/groups",
    )


def _scenario(
    values: Values, parse_when: Callable[[str], int], now_ms: Callable[[], int]
) -> tuple[ResetTo, tuple[str, ...]]:
    scenario = values["to"]
    option = f"--{scenario}"
    if scenario == _OFFSET:
        offset = _needed(number_of(values, "offset", "Offset", most=_INT64_MAX), "offset", "Offset: a number from 0 on")
        return ResetTo(where=Where.OFFSET, value=offset), (option, str(offset))
    if scenario == _SHIFT:
        shift = number_of(values, "shift", "Shift by", least=-_INT64_MAX, most=_INT64_MAX)
        shift = _needed(shift, "shift", "Shift by: a number, negative to go back")
        return ResetTo(where=Where.SHIFT, value=shift), (option, str(shift))
    try:
        if scenario == _DURATION:
            time_ms = parse_duration_ago(values["duration"], now_ms=now_ms())
            return ResetTo(where=Where.TIME, value=time_ms), (option, values["duration"].strip())
        if scenario == _TIME:
            time_ms = parse_when(values["time"].strip())
            return ResetTo(where=Where.TIME, value=time_ms), (option, format_time(time_ms))
    except (ValueError, OverflowError) as error:
        raise WrongInput("duration" if scenario == _DURATION else "time", str(error)) from None
    return ResetTo(where=Where.EARLIEST if scenario == _EARLIEST else Where.LATEST), (option,)


def _needed(number: int | None, name: str, sentence: str) -> int:
    if number is None:
        raise WrongInput(name, sentence)
    return number
