"""The browser components of the schema pages. Everything is shown as text."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.element import Element

from duralog.console.drawing.json_text import Token
from duralog.console.drawing.schema_difference import Line
from duralog.console.drawing.shown_bytes import visible

_LONGEST_LINE = 2_000


class SchemaText(Element, component="assets/schema_text.js"):
    def __init__(self, tokens: Sequence[Token], *, copy: str) -> None:
        super().__init__()
        self.props.update(tokens=[[str(kind), text] for kind, text in tokens], copy=copy)


class SchemaDifference(Element, component="assets/schema_difference.js"):
    def __init__(self, lines: Sequence[Line], left: str, right: str) -> None:
        super().__init__()
        self.props.update(lines=[_shown(line) for line in lines], left=left, right=right)


def _shown(line: Line) -> dict[str, object]:
    """Each side is a number and three texts: the common prefix, the difference, the common suffix."""
    if line.kind == "skipped":
        count = 0 if line.left is None else line.left[0]
        return {"kind": "skipped", "text": f"{count} equal line{'' if count == 1 else 's'}"}
    left, right = (None if side is None else visible(side[1][:_LONGEST_LINE]) for side in (line.left, line.right))
    sides: list[list[str] | None] = []
    for own, other, given in ((left, right, line.left), (right, left, line.right)):
        if own is None or given is None:
            sides.append(None)
        elif other is None or line.kind == "same":
            sides.append([str(given[0]), own, "", ""])
        else:
            sides.append([str(given[0]), *_emphasised(own, other)])
    return {"kind": line.kind, "left": sides[0], "right": sides[1]}


def _emphasised(own: str, other: str) -> tuple[str, str, str]:
    before = 0
    shorter = min(len(own), len(other))
    while before < shorter and own[before] == other[before]:
        before += 1
    after = 0
    while after < shorter - before and own[-1 - after] == other[-1 - after]:
        after += 1
    return own[:before], own[before : len(own) - after], own[len(own) - after :]
