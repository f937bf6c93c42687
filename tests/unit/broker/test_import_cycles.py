"""Import cycles of the broker, with imports for type checkers: the contracts of `pyproject.toml` leave those out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import duralog.broker

FOLDER = Path(duralog.broker.__file__).parent


def modules() -> dict[str, Path]:
    return {
        ".".join(("duralog.broker", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in FOLDER.rglob("*.py")
    }


def imported(path: Path) -> Iterator[str]:
    """The names of modules, and of what is imported from them, wherever in the file that stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_cycle_of_imports_with_those_for_type_checkers() -> None:
    known = modules()
    assert len(known) > 100
    graph = {name: {each for each in imported(path) if each in known} - {name} for name, path in known.items()}
    TopologicalSorter(graph).prepare()
    assert [name for name, below in graph.items() if "duralog.broker.broker" in below] == []
