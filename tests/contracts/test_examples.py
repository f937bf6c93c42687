"""The example and the README's snippets run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the example wrote its partition, and what it printed."""
    folder = tmp_path_factory.mktemp("sample") / "orders-0"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "first_log.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_the_example_shows_what_it_wrote(sample: tuple[Path, str]) -> None:
    _, shown = sample
    assert "150,000" in shown
    assert shown.count("$ duralog dump") == 5
    assert re.search(r"corrupt +nothing", shown)
    assert '"key":"customer-17"' in shown


def test_the_snippets_of_the_readme_run(sample: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = sample
    monkeypatch.chdir(folder.parent)
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


def test_the_commands_of_the_readme_are_there() -> None:
    """Every `make` target and every option of `duralog dump` that the README names."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    shown = subprocess.run(
        [sys.executable, "-m", "duralog", "dump", "--help"], capture_output=True, text=True, check=True
    )
    for option in set(re.findall(r"duralog dump.*?(--[a-z]+)", readme)):
        assert option in shown.stdout, option
