"""All tests in several processes, and a second try for the few that failed, each on its own with the machine to itself.

    python -m scripts.run_tests                     what `make test` runs
    python -m scripts.run_tests --quick             what `make quick` runs: unit tests that are not marked `slow`
    python -m scripts.run_tests -n 4 tests/unit     some of them, in four processes
    python -m scripts.run_tests --record            all, and write down how long each file took

The files that took longest come first, so that all processes end together, and those that share a Spark session or a
Kafka go to one process (`scripts/longest_first.py`). Each kernel and test file is compiled once, before the tests
start, and the classes of Spark are archived once for this tree. Temporary files are in memory if there is room: tests
wait for thousands of fsyncs otherwise. Those of failed tests are kept.

Many tests drive programs that are not ours (Kafka, Spark, Chromium, clients with threads of their own), on a machine
that is busy with all of them at once. What one of these does once in ten thousand times does not depend on a change. A
test that fails twice fails. One that passes on the second try is reported as unsteady at the very end: that is a
defect of the test or of duralog. The report of its first try stays in the output. More than a handful of failures get
no second try.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

QUICK = ["-m", "not slow", "tests/unit"]
MOST_SECOND_TRIES = 5
MANY_SPARKS = {"tests", "tests/spark"}
"""Where so many JVMs start that an archive of their classes is worth the time."""
IN_MEMORY = Path("/dev/shm")
LEAST_ROOM_BYTES = 4 << 30


class Watcher:
    """A plugin of pytest's that hands out the longest files first, and notes failures and times.

    A failure is that of a test, of its fixtures, or the end of a process while it ran.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from scripts.longest_first import LongestFirst  # Not before pytest has loaded xdist: it warns.

        return LongestFirst(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.split("::", 1)[0]] += report.duration
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests, and the few that fail a second time.")
    parser.add_argument("-n", type=int, default=2, metavar="N", help="in how many processes")
    parser.add_argument("--quick", action="store_true", help="the quick unit tests only, without Java or a browser")
    parser.add_argument("--record", action="store_true", help="write the times of files to tests/seconds.tsv")
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders, files or names of tests")
    asked = parser.parse_args()

    # Test processes that keep no bytecode spend ten seconds each on the tests alone.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if asked.n > 1:
        with _archived_spark_classes(wanted=not asked.quick and not MANY_SPARKS.isdisjoint(asked.tests)):
            _compile(asked.n, QUICK[-1:] if asked.quick else asked.tests)
    folder = _temporary_folder_in_memory()
    status = _run(asked.n, QUICK if asked.quick else asked.tests, record=asked.record)
    if folder is not None and status == pytest.ExitCode.OK:
        shutil.rmtree(folder, ignore_errors=True)
    elif folder is not None:
        print(f"The files of failed tests are in {folder}, in memory. Remove it when you have read them.")
    return status


def _run(processes: int, tests: Sequence[str], *, record: bool) -> int:
    seen = Watcher()
    status = int(pytest.main(["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder", *tests], [seen]))
    if record:
        from scripts.longest_first import record as write_down

        write_down(seen.seconds)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(seen.failed) <= MOST_SECOND_TRIES:
        return status

    print(f"\nA second try, one by one, for {len(seen.failed)} that failed.", flush=True)
    passed = {name: _passes(name) for name in seen.failed}
    for name, passes in passed.items():
        print("UNSTEADY, passed on the second try:" if passes else "FAILED TWICE:", name)
    return int(pytest.ExitCode.OK if all(passed.values()) else pytest.ExitCode.TESTS_FAILED)


def _passes(name: str) -> bool:
    return subprocess.run([sys.executable, "-m", "pytest", name], check=False).returncode == pytest.ExitCode.OK


def _compile(processes: int, tests: Sequence[str]) -> None:
    """Compile what the caches lack, each kernel and test file in one process: test processes would all do the same."""
    folders = [Path(name) for name in tests if Path(name).is_dir()]
    files = [str(file) for folder in folders for file in sorted(folder.rglob("test_*.py")) if not _is_compiled(file)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for _ in pool.map(_compile_share, range(processes), [processes] * processes, [files] * processes):
            pass


def _compile_share(first: int, step: int, files: Sequence[str]) -> None:
    from duralog.kernels.compilation.catalog import all_kernels

    for kernel in list(all_kernels().values())[first::step]:
        kernel.prepare()
    if share := files[first::step]:
        _compile_tests(share)


def _compile_tests(files: Sequence[str]) -> None:
    """Collect them: that compiles their assertions, which takes three times as long as all else about it."""
    sys.dont_write_bytecode = False  # Inherited from a process that was started before the variable was removed.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", *files])


def _is_compiled(file: Path) -> bool:
    compiled = (file.parent / "__pycache__").glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
    return any(each.stat().st_mtime >= file.stat().st_mtime for each in compiled)


@contextmanager
def _archived_spark_classes(*, wanted: bool) -> Iterator[None]:
    """Make what lets Spark's JVMs start in half the time, at the same time as what the block does."""
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-m", "tests.support.spark.class_archive"]):
        yield


def _temporary_folder_in_memory() -> str | None:
    """Let the tests and their processes make temporary files in memory, unless it has no room or TMPDIR is set."""
    if "TMPDIR" in os.environ or not _has_room(IN_MEMORY):
        return None
    folder = tempfile.mkdtemp(prefix="duralog-tests-", dir=IN_MEMORY)
    os.chmod(folder, 0o711)  # PostgreSQL runs as another user, in a folder of its own below this one.
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None  # It is looked up again, in TMPDIR.
    return folder


def _has_room(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    status = os.statvfs(folder)
    # Tests install programs and run them, which some containers forbid here.
    return status.f_bavail * status.f_frsize >= LEAST_ROOM_BYTES and not status.f_flag & os.ST_NOEXEC


if __name__ == "__main__":
    sys.exit(main())
