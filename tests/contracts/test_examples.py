"""The example and the README's snippets run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.own_folder import make_anew
from tests.support.places import ROOT


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


@pytest.mark.parametrize(
    "example",
    [
        ["examples/first_log.py"],
        *(["-m", f"examples.{name}", "--data"] for name in ("change_capture", "event_sourcing", "journaling", "story")),
    ],
    ids=lambda example: example[1] if len(example) > 1 else example[0],
)
def test_no_example_deletes_anything_of_its_user(tmp_path: Path, example: list[str]) -> None:
    (tmp_path / "precious").write_text("x")
    command = [sys.executable, *example, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "give a folder that is new" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_folder_of_an_example_is_recreated(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    make_anew(folder)
    (folder / "log").mkdir()
    make_anew(folder)
    assert not (folder / "log").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SystemExit, match="give a folder that is new"):
        make_anew(tmp_path / "file")


def test_the_targets_of_the_readme_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / "README.md").read_text()))
    assert {"run", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
