"""docs/architecture.md names modules that are there, and the layers that the import contract has."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib

from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
LAYERS = [f"duralog.{name}" for layer in CONTRACT["layers"] for name in layer.split(" | ") if name != "__main__"]


def test_modules_that_are_named_are_there() -> None:
    modules = set(re.findall(r"`(duralog(?:\.[a-z_0-9]+)+)`", PAGE))
    assert len(modules) > 40
    missing = []
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            missing.append(module)
    assert missing == []


def test_functions_on_the_paths_are_there() -> None:
    paths = PAGE.split("## The path of the data")[1].split("## Threads and locks")[0]
    named = re.findall(r"`((?:broker|columnar|kernels|scanning|spark|storage)(?:\.\w+)+)`", paths)
    assert len(named) > 50
    assert [name for name in named if not is_there(f"duralog.{name}")] == []


def is_there(name: str) -> bool:
    """A module, or something in one. Modules that need PySpark are found, not imported, if it is missing."""
    parts = name.split(".")
    for size in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_folders_that_are_named_are_there() -> None:
    folders = set(re.findall(r"`((?:tests|oracle)(?:/\w+)?)`", PAGE))
    assert folders
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder


def test_the_layers_are_those_of_the_contract() -> None:
    assert CONTRACT["type"] == "layers"
    assert re.findall(r"^\| `(duralog\.\w+)` \|", PAGE, re.MULTILINE) == LAYERS
