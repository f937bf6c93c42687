"""Power is lost at every change of a busy partition's files: what was flushed is there, and nothing that was not sent.

`--randomised 20` makes it more than 10,000 crashes.
"""

from __future__ import annotations

import copy
from random import Random

import pytest

from tests.support.faults.aftermath import check_aftermath
from tests.support.faults.crashing_files import CrashingFiles
from tests.support.faults.partition import SMALL_SEGMENTS
from tests.support.faults.workload import Workload

LIVES = 5
STEPS = 45


def crash_everywhere(seed: int) -> int:
    """Live one life, and look at what a crash at each change would leave. Returns how many crashes that were."""
    random = Random(seed)
    files = CrashingFiles(seed=seed, write_back=random.choice((0, 0.1, 0.5)))
    config = SMALL_SEGMENTS.with_overrides({"preallocate": seed % LIVES == 0})
    workload = Workload(files, seed, config)
    crashes = 0
    failures: list[Exception] = []

    def crash() -> None:
        nonlocal crashes
        crashes += 1
        fate = random.getrandbits(32)
        try:
            check_aftermath(files.after_power_loss(fate), copy.deepcopy(workload.ledger), Random(fate), config)
        except Exception as error:
            error.add_note(f"life {seed}, change {files.changes}, fate {fate}")
            # Not raised here: the log could take it for an error of the disk.
            failures.append(error)

    files.on_change = crash
    workload.run(STEPS)
    if failures:
        raise failures[0]
    return crashes


@pytest.mark.parametrize("life", range(LIVES))
def test_a_crash_at_any_change_loses_nothing_that_was_flushed(life: int, randomised: int) -> None:
    crashes = sum(crash_everywhere(life + LIVES * night) for night in range(randomised))
    assert crashes > 50 * randomised
