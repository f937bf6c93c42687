"""The line of progress: rate and time left, one line however narrow the terminal, and nothing without a terminal."""

from __future__ import annotations

import os
import pty
import re
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from duralog.cli.voice.progress import CountingBar, ProgressBar, Rate, clock_text, figures_text
from duralog.cli.voice.terminal import cells
from duralog.scanning.executor import TaskProgress


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], str]:
    """What some work leaves on a terminal, from its first moment on."""
    monkeypatch.setattr("duralog.cli.voice.progress._PATIENCE_SECONDS", 0)
    monkeypatch.setattr("duralog.cli.voice.progress._INTERVAL_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(work: Callable[[], None]) -> str:
        reader, writer = pty.openpty()
        with os.fdopen(writer, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            work()
        parts: list[bytes] = []
        with os.fdopen(reader, "rb", buffering=0) as end, suppress(OSError):
            while part := end.read(65536):
                parts.append(part)
        return b"".join(parts).decode()

    return run


def drawn(text: str) -> list[str]:
    return [line for line in re.sub(r"\x1b\[K", "", text).split("\r") if line]


def test_figures() -> None:
    mib = 1 << 20
    assert figures_text(312 * mib, 1024 * mib, 178 * mib, seconds=2) == "312 MiB of 1 GiB  178 MiB/s  0:04 left"
    assert figures_text(3, None, 2 * mib, seconds=75) == "3 B  2 MiB/s  1:15"
    assert figures_text(500, 2_000, 12.4, seconds=9, unit="record") == "500 of 2,000 records  12/s  2:01 left"
    assert figures_text(1, 3, 0.0, seconds=1, unit="partition") == "1 of 3 partitions  0.0/s"
    assert [clock_text(seconds) for seconds in (0, 61, 3599.7, 3661)] == ["0:00", "1:01", "1:00:00", "1:01:01"]


def test_the_rate_is_that_of_the_last_looks() -> None:
    rate = Rate(0.0)
    assert rate.at(1.0, 10) == 10
    for second in range(2, 200):
        last = rate.at(second, 10 + 100 * (second - 1))
    assert last == pytest.approx(100)
    assert Rate(5.0).at(5.0, 3) == 0


def test_the_rate_begins_again_if_a_step_is_repeated() -> None:
    rate = Rate(0.0)
    assert rate.at(1.0, 100) == 100
    assert rate.at(2.0, 10) == 0
    assert rate.at(3.0, 30) == 20


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_one_line_that_fits(
    shown: Callable[[Callable[[], None]], str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    def work() -> None:
        with CountingBar(1_000) as progress:
            for number in range(1, 6):
                progress.begin(f"注文-a-topic-with-quite-a-long-name-{number}")
                progress.advance(200)

    text = shown(work)
    lines = drawn(text)
    assert "\n" not in text
    assert len(lines) == 5
    assert max(map(cells, lines)) < columns
    assert "1000 B of 1000 B" in lines[-1]
    assert lines[-1].endswith("0:00 left")
    assert text.endswith("\r\x1b[K")


def test_without_a_total_it_shows_the_elapsed_time(shown: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with CountingBar(None, unit="record") as progress:
            progress.advance(12)

    assert re.fullmatch(r"12 records  [\d,.]+/s  0:00", drawn(shown(work))[0])


def test_an_end_that_is_known_later(shown: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with CountingBar(5, unit="record") as progress:
            progress.expect(100)
            progress.advance(5)
        with CountingBar(None, unit="record") as progress:
            progress.expect(100)
            progress.advance(5)

    lines = drawn(shown(work))
    assert "5 of 5 records" in lines[0]
    assert "5 of 100 records" in lines[1]


def test_every_step_is_measured_by_itself(shown: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with ProgressBar() as bar:
            for name, weight in (("verify", 100), ("repair", 60)):
                for done in (0, 50, weight):
                    bar.show(TaskProgress(name=name, tasks=2, tasks_done=done // 50, weight=weight, weight_done=done))
            bar.show(TaskProgress(name="shuffle", tasks=4, tasks_done=3, weight=4, weight_done=3, is_in_bytes=False))

    lines = drawn(shown(work))
    assert len(lines) == 7
    assert lines[2].startswith("verify: 2 of 2 tasks")
    assert "100 B of 100 B" in lines[2]
    assert "0 B of 60 B  0 B/s" in lines[3]
    assert lines[5].startswith("repair: 1 of 2 tasks")
    assert "3 of 4  0.0/s" in lines[6]


def test_it_makes_room_for_lines(shown: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        progress = CountingBar(10)
        progress.advance(5)
        progress.hide()
        progress.hide()
        sys.stderr.write("a line\n")
        progress.advance(5)
        progress.hide()

    text = shown(work)
    assert "\r\x1b[Ka line\r\n" in text
    assert text.count("\r\x1b[K") == 2


def test_nothing_where_nobody_looks(
    shown: Callable[[Callable[[], None]], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*, wanted: bool = True) -> None:
        with CountingBar(10, wanted=wanted) as progress:
            progress.advance(10)

    assert shown(lambda: work(wanted=False)) == ""
    monkeypatch.setenv("TERM", "dumb")
    assert shown(work) == ""
    monkeypatch.undo()
    work()
    assert capsys.readouterr().err == ""
