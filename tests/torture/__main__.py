"""`make torture`: a campaign against `duralog serve`, and the randomised tests of what it cannot reach from outside.

The seed is printed first. The same seed draws the same rounds, faults and mutants, not the same timing.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.torture.campaign import Campaign
from tests.torture.interposer import is_available
from tests.torture.rounds import ROUNDS

_SUITES = (
    "tests/properties/test_mutated_coordinator_records.py",
    "tests/broker/serving/test_forked_broker.py",
    "tests/faults/test_killed_process.py",
)
"""Coordinator records of any content, forks of a broker and of a store, kills of a process that appends."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8, help="of the campaign; the suites come after it")
    parser.add_argument("--seed", type=int, default=None, help="that of an earlier run")
    parser.add_argument("--only", action="append", choices=[each.__name__ for each in ROUNDS], help="these rounds")
    parser.add_argument("--disks", type=int, choices=(1, 2), help="log directories; by default the seed draws it")
    parser.add_argument("--no-suites", action="store_true", help="the campaign only")
    parser.add_argument("--keep", type=Path, help="an empty folder for the directory and the logs, which are kept")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}: again with  make torture SEED={seed}", flush=True)
    disks = options.disks or 1 + seed % 2
    print(f"log directories: {disks}", flush=True)
    if not is_available():
        print("gcc is not installed: no system call fails, and the clock does not jump", flush=True)
    rounds = [each for each in ROUNDS if not options.only or each.__name__ in options.only]
    with tempfile.TemporaryDirectory(prefix="duralog-torture-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = Campaign(folder.absolute(), seed, disks).run(options.minutes * 60, rounds)
    print("\n".join(report.lines()), flush=True)
    if options.no_suites:
        return int(not report.is_clean)
    suites = [sys.executable, "-m", "pytest", "-q", "--randomised", "2", *_SUITES]
    return int(not report.is_clean) or subprocess.run(suites, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
