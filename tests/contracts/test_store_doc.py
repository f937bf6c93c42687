"""The examples of docs/store.md run as they stand, one after the other, in one folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import DOCS

DOC = DOCS / "store.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 10
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert names["table"].num_rows == 1
    assert [names["count"](partition) for partition in (0, 1)] == [2, 2]
    told = re.findall(r"print\(.*\)  # ([^:\n]+)", "".join(examples))
    printed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert printed == told
    assert told == ["True True", "1", "1 2", "3 1", "nothing can be compacted from offset 3 on", "1 1", "1", "1"]
