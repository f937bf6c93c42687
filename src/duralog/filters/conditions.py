"""Conditions on a record, as values. `duralog.filters.parsing` reads them, `duralog.filters.matching` applies them.

A comparison holds if an existing value satisfies it. For a missing one (a null key, a path without a match), no
comparison holds, not even `!=`; but `not key = a` is true of a record without a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from duralog.errors import DuralogError


class Field(StrEnum):
    KEY = "key"
    VALUE = "value"
    HEADER = "header"
    """The values of headers: of those with one name, or of all."""
    ANYWHERE = "anywhere"
    """Key, value, and the names and values of headers."""


class Operator(StrEnum):
    EQUALS = "="
    DIFFERS = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    MATCHES = "matches"
    """A regular expression of RE2, whose time is linear in the text, is found somewhere in it."""
    EXISTS = "exists"


class Every:
    """`[*]`: every element of a list."""

    def __repr__(self) -> str:
        return "[*]"


EVERY = Every()
Scalar = str | int | Decimal | bool | None
"""Numbers are exact: a JSON number equals that of a condition if their decimal values are equal."""
Path = tuple[str | int | Every, ...]
"""Below `$`: a member of an object, an element of a list, or every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A condition on the bytes of a field. With `matches` or `ignores_case`, only UTF-8 matches."""

    field: Field
    header: str | None = None
    """The name of the headers; None for those of all names."""
    operator: Operator
    operand: bytes | None = None
    """None with `exists`, and for null with `=` and `!=`."""
    ignores_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """A condition on the values that a path finds in the JSON of a field. In bytes that are not JSON, it finds none."""

    field: Field
    header: str | None = None
    path: Path
    operator: Operator
    operand: Scalar = None
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class All:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    conditions: tuple[Condition, ...]


Condition = Text | Json | Not | All | Any


class FilterError(DuralogError):
    """An expression that cannot be read. `position` is the character of the error, counted from 0."""

    def __init__(self, why: str, text: str, position: int) -> None:
        super().__init__(f"{why} (at character {position + 1})")
        self.why = why
        self.text = text
        self.position = position

    def pointed(self, width: int = 72) -> str:
        """Two lines for a fixed-width font: the expression, or the part of it around the place, and a caret below."""
        begin = max(self.position - width * 2 // 3, 0)
        shown = "".join(char if char.isprintable() else " " for char in self.text[begin : begin + width])
        return f"{shown}\n{' ' * (self.position - begin)}^"


def uses_json(condition: Condition) -> bool:
    match condition:
        case Json():
            return True
        case Not():
            return uses_json(condition.condition)
        case All() | Any():
            return any(map(uses_json, condition.conditions))
    return False
