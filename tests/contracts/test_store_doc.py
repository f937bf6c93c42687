"""The examples of docs/store.md run as they stand, one after the other, in one folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOC = Path(__file__).parents[2] / "docs" / "store.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 4
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert names["table"].num_rows == 1
    told = re.findall(r"print\(.*\)  # ([^:\n]+)", "".join(examples))
    assert capsys.readouterr().out.splitlines()[2:5] == told == ["True True", "1", "1 2"]
