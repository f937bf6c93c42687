"""docs/architecture.md names modules that are there, and the layers that the import contract has."""

from __future__ import annotations

import importlib.util
import re
import tomllib

from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
LAYERS = [name for layer in CONTRACT["layers"] for name in layer.split(" | ") if name.startswith("duralog.")]


def test_modules_that_are_named_are_there() -> None:
    modules = set(re.findall(r"`(duralog(?:\.[a-z_0-9]+)+)`", PAGE))
    assert len(modules) > 60
    missing = []
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            missing.append(module)
    assert missing == []


def test_folders_that_are_named_are_there() -> None:
    folders = set(re.findall(r"`((?:tests|oracle)(?:/\w+)?)`", PAGE))
    assert folders
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder


def test_the_layers_are_those_of_the_contract() -> None:
    assert CONTRACT["type"] == "layers"
    assert re.findall(r"^\| `(duralog\.\w+)` \|", PAGE, re.MULTILINE) == LAYERS


def test_the_picture_has_every_layer_in_order() -> None:
    picture = (ROOT / "docs" / "images" / "layers.svg").read_text(encoding="utf-8")
    heights = {name: int(y) for y, name in re.findall(r'<text x="\d+" y="(\d+)">(\w+)</text>', picture)}
    shown = [name.removeprefix("duralog.") for name in LAYERS]
    assert set(shown) <= heights.keys()
    assert [heights[name] for name in shown] == sorted(heights[name] for name in shown)
