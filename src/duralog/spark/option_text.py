"""The options of reads and writes as Spark passes them: names without case, values as text.

Unknown names and invalid values are refused, with the valid ones in the error; nothing is guessed or ignored.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duralog.config.byte_sizes import parse_bytes
from duralog.errors import InvalidConfig

STORAGE_PREFIX = "fs."
"""Options for the file system that the logs lie in: keys, regions, endpoints."""

_INT64_MAX = 2**63 - 1
_WHOLE_NUMBER = re.compile("0*([0-9]{1,19})")
_DURATION = re.compile(r"([0-9]{1,18})\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_UNIT_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


class InvalidOption(InvalidConfig):
    """An option of a Spark read or write that does not exist, or a value that it does not allow."""


def refused(name: str, value: str, allowed: str) -> InvalidOption:
    return InvalidOption(f"option {name} is {value!r}: give {allowed}")


def refuse_unknown(given: Iterable[str], known: Sequence[str], *, prefixes: Sequence[str] = ()) -> None:
    """Every given name must be one of the known ones, or start with one of the prefixes, in any case."""
    spelled = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in spelled and not name.lower().startswith(tuple(prefixes)):
            near = [spelled[lower] for lower in difflib.get_close_matches(name.lower(), spelled, n=2, cutoff=0.7)]
            hint = f": did you mean {' or '.join(near)}?" if near else "."
            listed = ", ".join([*known, *(f"{prefix}*" for prefix in prefixes)])
            raise InvalidOption(f"there is no option {name}{hint} There are {listed}")


def boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise refused(name, text, "true or false")
    return lowered == "true"


def one_of(name: str, text: str, choices: Sequence[str]) -> str:
    """The choice that is meant, as it is spelled among the choices."""
    for choice in choices:
        if choice.lower() == text.strip().lower():
            return choice
    raise refused(name, text, " or ".join(choices))


def positive_int(name: str, text: str) -> int:
    return _whole_number(name, text, least=1)


def timestamp_ms(name: str, text: str) -> int:
    return _whole_number(name, text, least=0, what="milliseconds since 1970")


def _whole_number(name: str, text: str, *, least: int, what: str = "a whole number") -> int:
    match = _WHOLE_NUMBER.fullmatch(text.strip())
    if match is None or not least <= int(match[1]) <= _INT64_MAX:
        raise refused(name, text, f"{what}, at least {least} and less than 2^63")
    return int(match[1])


def size_bytes(name: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError:
        raise refused(name, text, "a number of bytes, at least 1, or one with k, m, g or t, such as 128m") from None


def duration_ms(name: str, text: str) -> int:
    """A time as Spark writes it: `500ms`, `30s`, `15m`, `1h`; without a unit, milliseconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise refused(name, text, "a time with its unit (us, ms, s, m, min, h, d), such as 15m, or milliseconds")
    return int(match[1]) * _UNIT_US[(match[2] or "ms").lower()] // 1_000


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not value:
        raise refused(name, text, f"JSON such as {example}")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is twice in one object")
    return found


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options for the file system, without their prefix."""
    return {
        name[len(STORAGE_PREFIX) :].lower(): value
        for name, value in options.items()
        if name.lower().startswith(STORAGE_PREFIX)
    }
