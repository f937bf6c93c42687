"""The differences of two schema versions: added, removed and changed fields, and their texts side by side.

JSON texts are laid out first, so that only content differs. Both results are bounded.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from enum import StrEnum

from duralog.console.drawing.schema_fields import Fields
from duralog.schemas.registered_schema import SchemaType

MOST_LINES = 4_000
"""Of each text: comparing takes their product in the worst case."""
_CONTEXT = 3


class Change(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class FieldChange:
    change: Change
    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Line:
    """A row of both texts: a side is None if it has no such line."""

    kind: str
    """`same`, `added`, `removed`, `changed`, or `skipped` for equal lines that are left out."""
    left: tuple[int, str] | None
    """Its number, from 1 on, and its text."""
    right: tuple[int, str] | None


def laid_out(type_: SchemaType, text: str) -> str:
    """JSON with one member a line; other texts as they are."""
    if type_ is SchemaType.PROTOBUF:
        return text.strip("\n")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def field_changes(before: Fields, after: Fields) -> list[FieldChange]:
    """In the order of the newer schema; removed fields come last."""
    found: list[FieldChange] = []
    for path, declared in after.items():
        if path not in before:
            found.append(FieldChange(Change.ADDED, path, "", declared))
        elif before[path] != declared:
            found.append(FieldChange(Change.CHANGED, path, before[path], declared))
    found += [FieldChange(Change.REMOVED, path, declared, "") for path, declared in before.items() if path not in after]
    return found


def lines_of(before: str, after: str) -> list[Line]:
    """Runs of equal lines are shortened to a few lines around the differences."""
    left, right = before.splitlines()[:MOST_LINES], after.splitlines()[:MOST_LINES]
    found: list[Line] = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    codes = matcher.get_opcodes()
    for number, (tag, l1, l2, r1, r2) in enumerate(codes):
        if tag == "equal":
            pairs = [(l1 + step, r1 + step) for step in range(l2 - l1)]
            head = 0 if number == 0 else _CONTEXT
            tail = 0 if number == len(codes) - 1 else _CONTEXT
            if len(pairs) > head + tail + 1:
                left_out = len(pairs) - head - tail
                found += [_same(left, right, pair) for pair in pairs[:head]]
                found.append(Line("skipped", (left_out, ""), None))
                found += [_same(left, right, pair) for pair in pairs[len(pairs) - tail :]]
            else:
                found += [_same(left, right, pair) for pair in pairs]
            continue
        for step in range(max(l2 - l1, r2 - r1)):
            old = (l1 + step + 1, left[l1 + step]) if l1 + step < l2 else None
            new = (r1 + step + 1, right[r1 + step]) if r1 + step < r2 else None
            kind = "changed" if old and new else "removed" if old else "added"
            found.append(Line(kind, old, new))
    return found


def _same(left: list[str], right: list[str], pair: tuple[int, int]) -> Line:
    return Line("same", (pair[0] + 1, left[pair[0]]), (pair[1] + 1, right[pair[1]]))
