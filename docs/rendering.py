"""What the scripts that render documents share: tables, and the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def main(script: Path, usage: str | None, target: Path, render: Callable[[], str]) -> int:
    """Write the document or, with `--check`, only tell whether it is stale. Returns the exit code."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(usage, file=sys.stderr)
        return 2
    document = render()
    if not arguments:
        target.write_text(document, encoding="utf-8")
        return 0
    if target.exists() and target.read_text(encoding="utf-8") == document:
        return 0
    print(f"{target.name} is stale: run python docs/{script.name}", file=sys.stderr)
    return 1
