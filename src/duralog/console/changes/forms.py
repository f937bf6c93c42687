"""The forms of the dialogs: their fields, and the change that the input describes.

Input from a browser is untrusted: every value is a text of bounded length, choices must be among the offered ones, and
names are checked by a broker's validators. `WrongInput` names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duralog.console.changes.change import Change, WrongInput

LONGEST_LINE = 4_000
LONGEST_TEXT = 900_000
"""Of a text area: a message of a page's socket may have a megabyte."""
_MOST_CONFIGS = 200
_INT32_MAX = 2**31 - 1

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    label: str
    kind: str = "text"
    """`text`, `area`, `select` or `check`."""
    value: str = ""
    """At first. A checked box is `on`."""
    choices: tuple[tuple[str, str], ...] = ()
    """Of a `select`: values and what is shown for them."""
    about: str = ""
    placeholder: str = ""
    when: tuple[str, tuple[str, ...]] | None = None
    """Shown only while another field has one of these values."""
    suggestions: tuple[str, ...] = ()

    def properties(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label": self.label,
            "kind": self.kind,
            "value": self.value,
            "choices": [{"value": value, "label": label} for value, label in self.choices],
            "about": self.about,
            "placeholder": self.placeholder,
            "when": None if self.when is None else {"name": self.when[0], "values": list(self.when[1])},
            "suggestions": list(self.suggestions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    title: str
    verb: str
    """The label of the last button: `Create`."""
    fields: tuple[Field, ...]
    read: Callable[[Values], Change]
    """Raises `WrongInput`."""
    about: str = ""
    is_harmful: bool = False
    """Whether something is lost for good."""
    leads_to: str | None = field(default=None)
    """The page to open afterwards, since this one has nothing left to show."""

    def change(self, given: object) -> Change:
        """The change that the browser's input describes."""
        return self.read(self._values(given))

    def _values(self, given: object) -> dict[str, str]:
        if not isinstance(given, dict):
            raise WrongInput("", "the form cannot be read")
        values = {}
        for each in self.fields:
            value = given.get(each.name, "")
            longest = LONGEST_TEXT if each.kind == "area" else LONGEST_LINE
            if not isinstance(value, str) or len(value) > longest:
                raise WrongInput(each.name, f"{each.label}: at most {longest:,} characters")
            try:
                value.encode()
            except UnicodeEncodeError:  # A lone surrogate.
                raise WrongInput(each.name, f"{each.label}: not a text") from None
            if each.kind == "select" and value not in [choice for choice, _ in each.choices]:
                raise WrongInput(each.name, f"{each.label}: not one of the choices")
            values[each.name] = value
        return values


def number_of(values: Values, name: str, label: str, *, least: int = 0, most: int = _INT32_MAX) -> int | None:
    """The number in a field; None for an empty one."""
    typed = values[name].strip().replace(",", "")
    if not typed:
        return None
    digits = typed.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19 or not least <= int(typed) <= most:
        raise WrongInput(name, f"{label}: a number from {least} to {most}")
    return int(typed)


def settings_of(values: Values, name: str, label: str) -> dict[str, str]:
    """The lines `NAME=VALUE` of a text area."""
    found: dict[str, str] = {}
    lines = [line for line in values[name].splitlines() if line.strip()]
    if len(lines) > _MOST_CONFIGS:
        raise WrongInput(name, f"{label}: at most {_MOST_CONFIGS} lines")
    for line in lines:
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise WrongInput(name, f"{label}: {line[:80]!r} is not NAME=VALUE")
        if key in found:
            raise WrongInput(name, f"{label}: {key} is given twice")
        found[key] = value
    return found


def partitions_of(values: Values, name: str, known: Sequence[int]) -> list[int] | None:
    """The numbers `0,2,5-7` in a field; None for an empty one."""
    typed = values[name].replace(" ", "")
    if not typed:
        return None
    numbers: set[int] = set()
    for part in typed.split(","):
        first, dash, last = part.partition("-")
        if not all(
            text.isascii() and text.isdecimal() and len(text) < 10 for text in ([first, last] if dash else [first])
        ):
            raise WrongInput(name, f"Partitions: {part[:40]!r} is not a number or a range such as 0-3")
        low, high = int(first), int(last) if dash else int(first)
        chosen = {number for number in known if low <= number <= high}
        if len(chosen) != high - low + 1:
            raise WrongInput(name, f"Partitions: {part} is not there: the topic has {len(known)}")
        numbers |= chosen
    return sorted(numbers)
