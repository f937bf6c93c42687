"""The definition of a config: its name, type, default, allowed values, and documentation.

Configs are declared once, as fields of a frozen dataclass: the field's name is Kafka's name with underscores for dots,
its default is Kafka's, and `config(...)` adds the rest. `definitions_of` reads the declarations back as a table.

A value may be given as a Python value or as text. Text is read as Kafka reads it: spaces around it do not count,
numbers are decimal, `true` and `false` may be in any case, list elements are divided by commas. What does not fit is
refused with the config's name, the value, and what would be allowed.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, Generic, TypeVar

from duralog.errors import InvalidConfig

T = TypeVar("T")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
"""As a number of messages or milliseconds: never."""
DOUBLE_MAX = 1.7976931348623157e308


HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True)
class Password:
    """A secret. Only `value` reveals it: no log line, error or response may contain it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return HIDDEN


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value."""

    name: str
    """Kafka's name for it."""
    meaning: str
    parse: Callable[[object], T | None]
    """None for what is not of this kind."""
    text: Callable[[T], str]
    """As Kafka writes it."""


def _parse_boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)[fFdD]?")


def _whole_number(bits: int) -> Callable[[object], int | None]:
    def parse(value: object) -> int | None:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None

    return parse


def _parse_double(value: object) -> float | None:
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value.strip())
        number = float(match[1]) if match else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= DOUBLE_MAX:
        number = float(value)
    else:
        return None
    return number if math.isfinite(number) else None


def _double_text(value: float) -> str:
    """As Java prints a double: very large and very small ones with one digit before the point and an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{int(exponent) + len(digits) - 1}"


def _parse_string(value: object) -> str | None:
    return value.strip() if isinstance(value, str) else None


def _parse_password(value: object) -> Password | None:
    if isinstance(value, str):
        return Password(value.strip())
    return value if isinstance(value, Password) else None


def _parse_list(value: object) -> tuple[str, ...] | None:
    """The elements without repetitions, in the order given. None if one of them is empty."""
    if isinstance(value, str):
        words: list[object] = [*value.split(",")] if value.strip() else []
    elif isinstance(value, list | tuple):
        words = [*value]
    elif isinstance(value, set | frozenset):
        words = sorted(value, key=str)
    else:
        return None
    elements = [word.strip() if isinstance(word, str) else "" for word in words]
    return tuple(dict.fromkeys(elements)) if all(elements) else None


def _parse_set(value: object) -> frozenset[str] | None:
    elements = _parse_list(value)
    return None if elements is None else frozenset(elements)


BOOLEAN = Kind("boolean", "true or false", _parse_boolean, lambda value: str(value).lower())
SHORT = Kind("short", "a whole number of 16 bits", _whole_number(16), str)
INT = Kind("int", "a whole number of 32 bits", _whole_number(32), str)
LONG = Kind("long", "a whole number of 64 bits", _whole_number(64), str)
DOUBLE = Kind("double", "a number", _parse_double, _double_text)
STRING = Kind("string", "text", _parse_string, str)
CLASS = Kind("class", "the name of a Java class", _parse_string, str)
PASSWORD = Kind("password", "text", _parse_password, str)
LIST = Kind("list", "a list of words", _parse_list, ",".join)
WORDS = Kind("list", "a list of words", _parse_set, lambda value: ",".join(sorted(value)))
"""A list whose order does not matter."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which values of its kind a config allows."""

    text: str
    holds: Callable[[Any], bool]


ANY = Allowed("", lambda _: True)


def at_least(low: float) -> Allowed:
    return Allowed(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Allowed:
    return Allowed(f"from {low} to {high}", lambda value: low <= value <= high)


def one_of(*choices: str) -> Allowed:
    return Allowed(f"one of {', '.join(choices)}", lambda value: value in choices)


def one_of_any_case(*choices: str) -> Allowed:
    return Allowed(f"one of {', '.join(choices)}", lambda value: value.lower() in choices)


def each_of(*choices: str) -> Allowed:
    return Allowed(f"any of {', '.join(choices)}, or none", lambda value: set(value) <= set(choices))


NOT_EMPTY = Allowed("not empty", bool)


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker config that gives a topic config its value, which may be in another unit."""

    name: str
    multiplier: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    name: str
    attribute: str
    """The name of the dataclass field."""
    kind: Kind[Any]
    default: Any
    """None for a config that has no value until it is given one."""
    allowed: Allowed
    doc: str
    synonyms: tuple[Synonym, ...] = ()
    """Of a topic config, the broker configs that set it for all topics. The first that is given counts."""

    @property
    def expected(self) -> str:
        return f"{self.kind.meaning}, {self.allowed.text}" if self.allowed.text else self.kind.meaning

    def parse(self, value: object) -> Any:
        """The value as this config's Python type. Raises InvalidConfig for one that is not allowed."""
        parsed = self.kind.parse(value)
        if parsed is None or not self.allowed.holds(parsed):
            shown = repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:100]}..."
            raise InvalidConfig(f"{self.name}: {shown} is not allowed, it must be {self.expected}")
        return parsed

    def text(self, value: Any) -> str:
        return "" if value is None else self.kind.text(value)


_DECLARED = "duralog.config"
Synonyms = tuple[str | Synonym, ...]


def config(kind: Kind[T], default: T, allowed: Allowed = ANY, *, doc: str, broker: Synonyms = ()) -> T:
    """Declares a config as a dataclass field. `broker` names the synonyms of a topic config."""
    return field(default=default, metadata=_declared(kind, allowed, doc, broker))


def optional_config(kind: Kind[T], allowed: Allowed = ANY, *, doc: str, broker: Synonyms = ()) -> T | None:
    """Declares a config that has no default."""
    return field(default=None, metadata=_declared(kind, allowed, doc, broker))


def _declared(kind: Kind[T], allowed: Allowed, doc: str, broker: Synonyms) -> dict[str, Any]:
    synonyms = tuple(Synonym(name) if isinstance(name, str) else name for name in broker)
    return {_DECLARED: (kind, allowed, doc, synonyms)}


def definitions_of(declarations: type) -> Mapping[str, ConfigDef]:
    """The configs that a dataclass declares, by name, in their order."""
    table = {}
    for declared in fields(declarations):
        if _DECLARED in declared.metadata:
            kind, allowed, doc, synonyms = declared.metadata[_DECLARED]
            name = declared.name.replace("_", ".")
            table[name] = ConfigDef(
                name=name,
                attribute=declared.name,
                kind=kind,
                default=declared.default,
                allowed=allowed,
                doc=doc,
                synonyms=synonyms,
            )
    return table


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """A hint for an unknown name: similar names. Empty if there are none."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff)
    return f"; did you mean {' or '.join(near)}?" if near else ""
