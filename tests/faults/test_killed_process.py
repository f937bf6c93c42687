"""A real process on a real disk, killed with SIGKILL while it appends, again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import duralog
from tests.support.faults import appending_process
from tests.support.faults.appending_process import CONFIG, TOPIC, value_of

ROUNDS = 12
LINES_AT_MOST = 40
PATIENCE_SECONDS = 60


def append_until_killed(directory: Path, first_number: int, lines: int) -> int:
    """Let a process append, and kill it after this many lines. Returns the last number that it confirmed."""
    process = subprocess.Popen(
        [sys.executable, appending_process.__file__, str(directory), str(first_number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    vouched = first_number
    try:
        assert process.stdout.readline() == "open\n", process.stderr.read()
        for _ in range(lines):
            vouched = int(process.stdout.readline())
        process.kill()
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -9, errors
    # A line that was torn by the kill is not vouched for.
    complete = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return int(complete[-1]) if complete else vouched


def test_a_killed_process_loses_nothing_that_it_confirmed(tmp_path: Path, randomised: int) -> None:
    random = Random(0)
    vouched = end = 0
    for _ in range(ROUNDS * randomised):
        vouched = append_until_killed(tmp_path, end, random.randint(1, LINES_AT_MOST))
        with duralog.open(tmp_path, config=CONFIG, read_only=True) as store:
            seen = sum(1 for _ in store.partition(TOPIC, 0).read(0))
        with duralog.open(tmp_path, config=CONFIG) as store:
            log = store.partition(TOPIC, 0)
            assert log.end_offset >= vouched
            # Only the process died: what it wrote is all there, up to half a batch at the very end.
            assert log.end_offset >= seen
            numbers = 0
            for number, record in enumerate(log.read(0)):
                assert record.offset == number
                assert record.value == value_of(number)
                numbers += 1
            assert numbers == log.end_offset
            assert log.offset_for_timestamp(0) is not None
            end = log.end_offset
    assert end > 0
