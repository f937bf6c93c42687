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
    """Where the example wrote its log, and what it printed."""
    folder = tmp_path_factory.mktemp("sample") / "log"
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
    assert shown.count("$ duralog ") == 6
    assert re.search(r"corrupt +nothing", shown)
    assert '"key":"customer-17"' in shown


def test_the_example_deletes_nothing_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    command = [sys.executable, str(ROOT / "examples" / "first_log.py"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "give a folder that is new" in result.stderr
    assert (tmp_path / "precious").exists()


def test_the_snippets_of_the_readme_run(sample: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = sample
    monkeypatch.chdir(folder.parent)
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        if "duralog.spark" in snippet:
            continue  # tests/spark/test_spark_docs.py
        exec(compile(snippet, "README.md", "exec"), {})


def test_the_commands_of_the_readme_are_there() -> None:
    """Every `make` target, every command and every option that the README names."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    commands = re.findall(r"^duralog ((?:[a-z]+ )+)(.*?)(?: *#.*)?$", readme, re.MULTILINE)
    assert len(commands) > 5
    options: dict[str, set[str]] = {}
    for command, arguments in commands:
        name = command.strip().removesuffix(" orders")
        options.setdefault(name, set()).update(re.findall(r"--[a-z-]+", arguments))
    for name, named in options.items():
        shown = subprocess.run(
            [sys.executable, "-m", "duralog", *name.split(), "--help"], capture_output=True, text=True, check=True
        )
        assert named <= set(re.findall(r"--[a-z-]+", shown.stdout)), name
