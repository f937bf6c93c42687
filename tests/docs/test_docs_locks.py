"""docs/locks.md names every lock of the store and the broker, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "locks.md").read_text(encoding="utf-8")
PACKAGES = ("storage", "broker", "kernels")
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def documented() -> set[str]:
    return set(re.findall(r"^\| `([\w.]+)` \|", section("Inside a process"), re.MULTILINE))


def locks_in(source: Path) -> Iterator[str]:
    """`Class.attribute`, or the variable's name, of everything that is made by `threading.Lock` and the like."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    plain = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "threading"
        for alias in node.names
    } & LOCKS
    yield from _made_in(tree, "", plain)


def _made_in(node: ast.AST, owner: str, plain: set[str]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _made_in(child, child.name, plain)
        elif isinstance(child, ast.FunctionDef):
            yield from _made_in(child, owner or child.name, plain)
        else:
            if isinstance(child, ast.Assign | ast.AnnAssign) and _makes_lock(child.value, plain):
                target = child.targets[0] if isinstance(child, ast.Assign) else child.target
                name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
                yield f"{owner}.{name}".lstrip(".")
            yield from _made_in(child, owner, plain)


def _makes_lock(value: ast.expr | None, plain: set[str]) -> bool:
    return value is not None and any(_is_made(found, plain) for found in ast.walk(value))


def _is_made(node: ast.AST, plain: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return isinstance(called.value, ast.Name) and called.value.id == "threading" and called.attr in LOCKS
    return isinstance(called, ast.Name) and called.id in {*plain, "StoppableLock"}


def test_every_lock_is_on_the_page() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / "src" / "duralog" / package).rglob("*.py")]
    made = {lock for source in sources for lock in locks_in(source)}
    assert len(made) > 15
    assert made - documented() == set(), "locks that docs/locks.md does not name"
    assert documented() - made == set(), "locks that the code does not have"


def test_the_order_names_locks_of_the_table() -> None:
    named = set(re.findall(r"`([A-Z_]\w*\.\w+)`", section("The order")))
    assert named
    assert named <= documented()
