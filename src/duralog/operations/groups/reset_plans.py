"""Plans of a reset as CSV, in the form of Kafka's `kafka-consumer-groups --export` and `--from-file`.

A line is `topic,partition,offset`, or `group,topic,partition,offset` if the plan is of several groups.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence

from duralog.errors import InvalidConfig
from duralog.operations.groups.reset_offsets import GroupReset, Place

_MOST_UNQUOTED = 24
_FIRST_UNQUOTED = "-"
_INT64_MAX = 2**63 - 1


def plan_as_csv(resets: Iterable[GroupReset], *, with_groups: bool) -> str:
    return "".join(
        ",".join(
            (
                *([_quoted(reset.group)] if with_groups else []),
                *(_quoted(each.topic), str(each.partition), str(each.after)),
            )
        )
        + "\n"
        for reset in resets
        for each in reset.offsets
    )


def _quoted(text: str) -> str:
    """As Kafka's library for CSV does it: long texts, too, and all with a character before `-`."""
    if text and len(text) <= _MOST_UNQUOTED and min(text) >= _FIRST_UNQUOTED:
        return text
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def plan_of_csv(lines: Iterable[str], groups: Sequence[str] | None, where: str) -> dict[str, Mapping[Place, int]]:
    """The offsets by group. `groups` are those that were chosen, None for all of the file.

    Lines of other groups are skipped. Raises `InvalidConfig` with the number of a line that is wrong, and for all
    groups also if there is no line.
    """
    plan: dict[str, dict[Place, int]] = {}
    rows = csv.reader(lines, strict=True)
    try:
        for row in rows:
            if not row:
                continue
            try:
                *group, topic, partition, offset = (field.strip() for field in row)
                place, to = (topic, _number("partition", partition)), _number("offset", offset)
            except InvalidConfig as error:
                raise _wrong(where, rows.line_num, str(error)) from None
            except ValueError:
                expected = "topic,partition,offset or group,topic,partition,offset"
                raise _wrong(where, rows.line_num, f"expected {expected}") from None
            if len(group) > 1 or (not group and (groups is None or len(groups) != 1)):
                expected = "group,topic,partition,offset" if not group else "at most four fields"
                raise _wrong(where, rows.line_num, f"expected {expected}, found {len(row)} fields")
            name = group[0] if group else (groups or [""])[0]
            if groups is None or name in groups:
                plan.setdefault(name, {})[place] = to
    except (csv.Error, UnicodeDecodeError) as error:
        raise _wrong(where, rows.line_num, f"not CSV in UTF-8: {error}") from None
    if groups is None and not plan:
        raise InvalidConfig(f"{where}: the plan has no offsets")
    return dict(plan)


def _number(name: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal():
        raise ValueError
    if text != digits:
        raise InvalidConfig(f"{name} {text[:40]} is negative")
    if int(digits) > _INT64_MAX:
        raise InvalidConfig(f"{name} {text[:40]} is larger than {_INT64_MAX}")
    return int(digits)


def _wrong(where: str, line: int, reason: str) -> InvalidConfig:
    return InvalidConfig(f"{where}, line {line}: {reason}")
