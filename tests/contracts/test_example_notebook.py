"""The example notebook runs, and every cell shows what its text says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.places import ROOT

NOTEBOOK = ROOT / "examples" / "notebooks" / "explore_a_log.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def html_of(outputs: list[Any]) -> str:
    (output,) = outputs
    return "".join(output["data"]["text/html"])


def text_of(outputs: list[Any]) -> str:
    # With an empty kernel cache, a command says first that it compiles.
    (output,) = (found for found in outputs if not found.get("text", "").startswith("duralog: compiling"))
    return "".join(output["data"]["text/plain"] if "data" in output else output["text"])


def shows(*words: str) -> Callable[[list[Any]], None]:
    def check(outputs: list[Any]) -> None:
        html = html_of(outputs)
        assert "<table" in html
        for word in words:
            assert word in html, html

    return check


def shows_nothing(outputs: list[Any]) -> None:
    assert outputs == []


def shows_nothing_expired(outputs: list[Any]) -> None:
    assert "nothing has expired" in html_of(outputs)


def shows_the_found_record(outputs: list[Any]) -> None:
    assert text_of(outputs) == "(1096, b'customer-4', b'{\"balance\": 2039}')"


def shows_an_explanation(outputs: list[Any]) -> None:
    text = text_of(outputs)
    assert "balances-0" in text
    assert "superseded by a later record of the key" in text


def shows_the_page(outputs: list[Any]) -> None:
    html = html_of(outputs)
    assert html.startswith("<div><iframe srcdoc=")
    assert html.count("&lt;svg") >= 5
    # Partition 0 is compacted by now: the hot keys are those of the other one.
    assert "customer-1" in html


CHECKS: dict[str, Callable[[list[Any]], None]] = {
    "make": shows_nothing,
    "store": shows("open for writing", "balances", "compact", "5,000"),
    "log": shows("balances-0", "active"),
    "pandas": shows("timestamp", "customer-"),
    "polars": shows("changes", "closed", "customer-0"),
    "duckdb": shows("Monday", "Sunday", "changes"),
    "time": shows_the_found_record,
    "explain": shows_an_explanation,
    "compact": shows("Compaction of balances-0", "records", "superseded by a later record"),
    "after": shows("balances-0", "active"),
    "retention": shows_nothing_expired,
    "verify": shows("no findings", "balances-0", "balances-1"),
    "stats": shows("What is in the topics", "balances"),
    "plot": shows_the_page,
    "end": shows_nothing,
}


def test_it_is_kept_without_outputs() -> None:
    nbformat.validate(read())
    for cell in read().cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None), cell.id


def test_every_cell_gives_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = read()
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # Where the command of this installation is.
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    assert code.keys() == CHECKS.keys()
    for name, check in CHECKS.items():
        check(code[name].outputs)
