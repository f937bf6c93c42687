"""The fenced blocks of a Markdown page, with their place in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)(`{3,})\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    """The first word behind the fence, or nothing."""

    marks: tuple[str, ...]
    """The other words: `run`, `file=NAME`."""

    line: int
    """Where the contents begin: lines of the page count from 0."""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def file(self) -> str | None:
        """The name of the file that the reader is to make of it."""
        return next((mark.removeprefix("file=") for mark in self.marks if mark.startswith("file=")), None)


def blocks(page: str) -> Iterator[Block]:
    """Every fenced block, from the top. One that is not closed ends with the page."""
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        indent, fence, info = opened.groups()
        first = number
        while number < len(lines) and not re.fullmatch(rf" *{fence}`*\s*", lines[number]):
            number += 1
        words = info.split()
        contents = tuple(line.removeprefix(indent) for line in lines[first:number])
        yield Block(words[0] if words else "", tuple(words[1:]), first, contents)
        number += 1


def prose(page: str) -> str:
    """The page without its fenced blocks; lines stay where they are."""
    lines = page.splitlines()
    for block in blocks(page):
        for number in range(block.line, block.line + len(block.lines)):
            lines[number] = ""
    return "\n".join(lines)
