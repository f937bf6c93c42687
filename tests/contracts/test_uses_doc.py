"""What docs/uses.md names is there: modules to run, files, functions."""

from __future__ import annotations

import importlib.util
import re

from tests.support.places import ROOT

DOC = (ROOT / "docs" / "uses.md").read_text(encoding="utf-8")


def test_the_examples_can_be_run() -> None:
    modules = set(re.findall(r"python -m ([a-z_.]+)", DOC))
    assert len(modules) == 4
    for module in modules:
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        name = module if spec.submodule_search_locations is None else f"{module}.__main__"
        assert importlib.util.find_spec(name) is not None, name


def test_what_is_named_is_there() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")}
    files = set(re.findall(r"`([a-z_]+\.py)`", DOC))
    assert len(files) == 5
    assert files <= set(sources)
    functions = re.findall(r"`(state_[a-z_]+)\(", DOC)
    assert len(functions) == 3
    for function in functions:
        assert any(f"def {function}(" in text for text in sources.values()), function
