"""All tests in two processes, and a second try for the few that failed, each on its own with the machine to itself.

    python -m scripts.run_tests                     what `make test` runs
    python -m scripts.run_tests -n 4 tests/unit     some of them, in four processes

Many tests drive programs that are not ours (Kafka, Spark, Chromium, clients with threads of their own), on a machine
that is busy with all of them at once; what one of these does once in ten thousand times says nothing about a change. A
test that fails twice fails. One that passes on the second try is told as unsteady at the very end: that is a defect, of
the test or of duralog, to be looked into with the report of its first try, which stays in the output. More than a
handful of failures are no chance, and get no second try.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

MOST_SECOND_TRIES = 5


class FailedTests:
    """A plugin of pytest's that notes what failed: tests, their fixtures, and the test that a process died of."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.names:
            self.names.append(report.nodeid)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests, and the few that fail a second time.")
    parser.add_argument("-n", type=int, default=2, metavar="N", help="in how many processes")
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders, files or names of tests")
    asked = parser.parse_args()

    failed = FailedTests()
    arguments = ["-n", str(asked.n), "--dist", "loadfile", "--no-loadscope-reorder", *asked.tests]
    status = int(pytest.main(arguments, plugins=[failed]))
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed.names) <= MOST_SECOND_TRIES:
        return status

    print(f"\nA second try, one by one, for {len(failed.names)} that failed.", flush=True)
    passed = {name: _passes(name) for name in failed.names}
    for name, passes in passed.items():
        print("UNSTEADY, passed on the second try:" if passes else "FAILED TWICE:", name)
    return int(pytest.ExitCode.OK if all(passed.values()) else pytest.ExitCode.TESTS_FAILED)


def _passes(name: str) -> bool:
    return subprocess.run([sys.executable, "-m", "pytest", name], check=False).returncode == pytest.ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
