"""The runner of shown commands: it finds what differs, and only that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import shown_commands
from shown_commands import Command, without_varying


def page(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_what_is_printed_is_compared(tmp_path: Path) -> None:
    text = page("```console", "$ echo one", "one", "$ echo two", "three", "```")
    first, second = shown_commands.run(text, tmp_path)
    assert first.is_true
    assert not second.is_true
    assert shown_commands.rewritten(text, [first, second]) == text.replace("three", "two")


def test_a_page_is_filled_in(tmp_path: Path) -> None:
    text = page("```console", "$ printf 'a\\nb\\n'", "$ echo c", "```", "", "words")
    filled = shown_commands.rewritten(text, shown_commands.run(text, tmp_path))
    assert filled == page("```console", "$ printf 'a\\nb\\n'", "a", "b", "$ echo c", "c", "```", "", "words")


def test_files_and_blocks_that_run(tmp_path: Path) -> None:
    text = page(
        "```text file=made",
        "1",
        "```",
        "```python file=add.py",
        "print(int(open('made').read()) + 1)",
        "```",
        "```python run",
        "open('ran', 'w').write('yes')",
        "```",
        "```console",
        "$ python add.py",
        "2",
        "$ cat \\",
        "> ran; echo",
        "yes",
        "```",
    )
    assert all(command.is_true for command in shown_commands.run(text, tmp_path))


def test_a_failed_block_is_reported(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        shown_commands.run(page("```python run", "raise SystemExit(3)", "```"), tmp_path)


def test_what_is_left_running_is_ended(tmp_path: Path) -> None:
    script = "trap 'echo gone > ended; exit' TERM; echo x is ready on :9092; while :; do sleep 0.05; done"
    (tmp_path / "serve.sh").write_text(script)
    text = page("```console", "$ bash serve.sh &", "x is ready on :9092", "$ kill %1", "$ cat ended", "gone", "```")
    assert all(command.is_true for command in shown_commands.run(text, tmp_path))


@pytest.mark.parametrize(
    ("said", "printed", "alike"),
    [
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["..."], [], True),
        (["a", "..."], ["b"], False),
        (["a"], ["a", "b"], False),
        (["in 0.19 s (4.99 MiB/s)"], ["in 12 s (1.2 GiB/s)"], True),
        (["x   2026-01-01T00:00:00.000Z"], ["x 2026-12-31T23:59:59.999Z"], True),
        (["id FKSrWKVsSUemkNBjpmL2Nw"], ["id 2zkWAqHWRzK1BgBVq-jXyA"], True),
        (["40 records"], ["41 records"], False),
    ],
)
def test_only_what_varies_may_differ(said: list[str], printed: list[str], alike: bool) -> None:
    assert Command(0, "", said, 1, printed).is_true is alike


def test_names_of_segments_are_not_taken_for_ids() -> None:
    assert without_varying("00000000000000003229.log") == "00000000000000003229.log"
