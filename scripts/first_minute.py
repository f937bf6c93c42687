"""The first minute of somebody new: the commands of the README in an empty folder, timed, for docs/first-minute.md.

    python scripts/first_minute.py                everything, `make run` in a new clone included: five minutes
    python scripts/first_minute.py --no-clone     without `make run`; what the page says about that stays
    python scripts/first_minute.py --wheel FILE   with a wheel that was built before
    python scripts/first_minute.py --page FILE    write another page than docs/first-minute.md

The environment is a new one, and so is the cache of compiled kernels: every step pays what it costs on a machine that
has never seen duralog. The one thing that differs from the README is where pip gets duralog from: a wheel of this
project's folder, built as for a release. It needs Python and a C compiler; `make run` in the clone needs Java.

What has a limit (`LIMITS`) is run several times, each with an empty cache. If a limit is missed, the page says so and
the exit code is 1. On a machine whose load is above the number of its cores, nothing is run and no page is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-minute.md"
FIRST_ANSWER = ROOT / "scripts" / "first_answer.py"
sys.path.insert(0, str(ROOT / "docs"))

from markdown_blocks import Block, blocks  # noqa: E402

TEXT = """<!-- Made by scripts/first_minute.py: run it again when the README changes. Blocks of the README: {digest} -->

# First minute

What somebody new gets from the README, from an empty folder: a new environment, nothing compiled, nothing cached but
what pip keeps. Run on {date}, with {cores} cores and Python {python}, by `python scripts/first_minute.py`, which takes
the commands out of the README. pip gets duralog from a wheel of the project's folder. The load of the machine was
{load:.1f} when it began.

## Limits

Every run has an empty cache of compiled kernels. The broker's times count from its command on. The size includes pip
and setuptools.

{limits}

The wheel has its kernels as [machine code](decisions/0015-machine-code.md). Without it, numba compiles them at
their first use: [what that costs](store.md#without-machine-code).

## The commands of the README

{steps}

## From a clone

{clone}
"""
_CLONE = re.compile(r"^## From a clone\n\n(.*)", re.MULTILINE | re.DOTALL)
_SECONDS = 900
_MOST_LINES = 14
_RUNS = 3


@dataclass(frozen=True, slots=True)
class Limit:
    what: str
    most: float | None
    """None if it must succeed, however long it takes."""
    unit: str = "s"

    def amount(self, number: float) -> str:
        return f"{number:.1f} {self.unit}" if self.unit == "s" else f"{number:.0f} {self.unit}"


SNIPPET = Limit("the first snippet: open, append, read", 1.5)
ANSWER = Limit("the first answer of `duralog serve`", 1.5)
CONSUMED = Limit("the first record produced to it and consumed by a client", 2.5)
TEST = Limit("the test with a broker", 3.0)
BUSY_TEST = Limit("the test while four processes spin", None)
SIZE = Limit("the environment on disk, after the install", 400, "MB")
LIMITS = (SNIPPET, ANSWER, CONSUMED, TEST, BUSY_TEST, SIZE)


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    typed: str
    printed: str
    seconds: float
    cpu_seconds: float
    is_extra: bool = False
    """Not of the README: left out of the sum."""

    @property
    def has_cpu_seconds(self) -> bool:
        """What Spark's processes use is not reported to their parent, and a process that spins uses all there is."""
        return not self.typed.startswith("make run") and not self.is_extra


class EmptyFolder:
    """A folder with nothing in it, and the steps that were taken there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTEST"))},
            "PATH": f"{folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "DURALOG_CACHE_DIR": str(folder / "cache"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_COLOR": "1",
            "COLUMNS": "110",
        }
        self.steps: list[Step] = []
        self.measured: dict[Limit, list[float]] = {limit: [] for limit in LIMITS}

    def forget_what_was_compiled(self) -> None:
        shutil.rmtree(self._environment["DURALOG_CACHE_DIR"], ignore_errors=True)

    def measure_environment(self) -> None:
        files = (path.lstat() for path in (self._folder / "env").rglob("*"))
        self.measured[SIZE].append(sum(512 * found.st_blocks for found in files) / 1e6)

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")

    def step(self, title: str, typed: str, command: str | None = None, *, is_extra: bool = False) -> Step:
        """Run what is typed, or the command that stands for it, and everything that it starts; it must not fail."""
        self.steps.append(self.run(title, typed, command, is_extra=is_extra))
        return self.steps[-1]

    def run(self, title: str, typed: str, command: str | None = None, *, is_extra: bool = False) -> Step:
        """As `step`, but not one of the steps of the page."""
        began, cpu_began = time.monotonic(), children_cpu_seconds()
        process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", command or typed],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        seconds = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"{typed}\nended with exit code {process.returncode}:\n{printed}")
        cpu_seconds = children_cpu_seconds() - cpu_began
        print(f"{seconds:6.1f} s  {title}", flush=True)
        return Step(title, typed, printed.replace(f"{self._folder}/", "").strip(), seconds, cpu_seconds, is_extra)


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def readme_blocks() -> list[Block]:
    return list(blocks((ROOT / "README.md").read_text(encoding="utf-8")))


def readme_digest() -> str:
    """Of all that the README has to type or to copy: another one means that the page is stale."""
    return hashlib.md5("\0".join(block.text for block in readme_blocks()).encode()).hexdigest()


def containing(text: str) -> Block:
    return next(block for block in readme_blocks() if text in block.text)


def build_wheel(target: Path) -> Path:
    """With the kernels' machine code, as for a release."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(ROOT)],
        env={**os.environ, "DURALOG_WHEEL": "machine-code", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=True,
    )
    return next(target.glob("*.whl"))


def first_minute(folder: EmptyFolder, wheel: Path) -> None:
    folder.step("an environment", f"{Path(sys.executable).name} -m venv env", f"{sys.executable} -m venv env")
    install = containing("pip install").lines[0].split("  #")[0].rstrip()
    folder.step("install", install, install.replace("'duralog[", f"'{wheel}[") + " --quiet")
    folder.measure_environment()

    snippet = containing("duralog.open").text
    folder.write("first.py", snippet)
    folder.step("the first snippet", "python first.py")
    folder.step("the first snippet's folder, seen again", "duralog consume data -t orders")

    broker = containing("duralog serve")
    # A reader sees the line that says ready, and stops the broker in the end: both have to be done here.
    served = broker.text.replace(" &", " --ready-file ready & until [ -f ready ]; do sleep 0.1; done", 1)
    folder.step("a broker, a producer, a consumer", broker.text.strip(), f"{served}\nkill $!; wait $!")

    folder.write("test_orders.py", containing("def test_orders").text)
    folder.step("pytest", "pip install pytest", "pip install pytest --quiet")
    folder.step("a test against a broker", "pytest -q test_orders.py")
    minute_limits(folder)


def minute_limits(folder: EmptyFolder) -> None:
    """What has a limit, several times with nothing compiled."""
    spinning = "for _ in 1 2 3 4; do timeout 60 python -c 'while True: pass' & pids+=($!); done"
    ended = 'kill "${pids[@]}"; wait || true'
    tested = "pytest -q test_orders.py"
    for number in range(_RUNS):
        folder.forget_what_was_compiled()
        command = f'rm -rf data{number}; sed \'s/"data"/"data{number}"/\' first.py > first{number}.py'
        folder.run("prepare", command)
        folder.measured[SNIPPET].append(folder.run(SNIPPET.what, f"python first{number}.py").seconds)
        folder.forget_what_was_compiled()
        answered = folder.run("a broker and its clients", f"python '{FIRST_ANSWER}' served{number}")
        seconds = json.loads(answered.printed.splitlines()[-1])
        folder.measured[ANSWER].append(seconds["answer"])
        folder.measured[CONSUMED].append(seconds["consumed"])
        folder.forget_what_was_compiled()
        folder.measured[TEST].append(folder.run(TEST.what, tested).seconds)
        folder.forget_what_was_compiled()
        busy = folder.run(BUSY_TEST.what, tested, f"{spinning}\n{tested}\n{ended}", is_extra=True)
        folder.measured[BUSY_TEST].append(busy.seconds)
    folder.steps.append(replace(busy, title="extra, not in the sum: the test again while four processes spin"))


def from_a_clone(folder: EmptyFolder) -> None:
    folder.step("the clone", "git clone ... duralog", f"git clone --quiet {ROOT} duralog")
    folder.step("set-up: environment, pinned requirements, Java", "make env java", "make -s -C duralog env java")
    folder.step("the whole story", containing("make run").lines[0].split("  #")[0].rstrip(), "make -s -C duralog run")


def cpu_cell(step: Step) -> str:
    return f"{step.cpu_seconds:.1f} s" if step.has_cpu_seconds else "-"


def told(steps: list[Step]) -> str:
    rows = [f"| {step.title} | {step.seconds:.1f} s | {cpu_cell(step)} |" for step in steps]
    wall = sum(step.seconds for step in steps if not step.is_extra)
    cpu = sum(step.cpu_seconds for step in steps if step.has_cpu_seconds)
    all_cpu = "-" if any(step.typed.startswith("make run") for step in steps) else f"**{cpu:.1f} s**"
    head = "| step | took | CPU |\n|---|---|---|"
    parts = ["\n".join([head, *rows, f"| **together** | **{wall:.1f} s** | {all_cpu} |"])]
    for step in steps:
        lines = step.printed.replace(str(ROOT), "duralog").splitlines()
        if not lines:
            continue
        shown = lines if len(lines) <= _MOST_LINES else [*lines[:3], "...", *lines[4 - _MOST_LINES :]]
        typed = "\n".join(f"$ {line}" for line in step.typed.splitlines())
        if step.is_extra:
            typed += "    # again, while four processes spin on all cores"
        parts.append("```text\n" + "\n".join([typed, *(line.rstrip() for line in shown)]) + "\n```")
    return "\n\n".join(parts)


def limits_table(measured: dict[Limit, list[float]]) -> str:
    rows = []
    for limit, numbers in measured.items():
        took = ", ".join(map(limit.amount, numbers))
        verdict = "passed" if limit.most is None else "MISSED" if is_missed(limit, numbers) else "met"
        rows.append(f"{limit_cells(limit)} {took} | {verdict} |")
    return "\n".join(["| | at most | measured | |", "|---|---|---|---|", *rows])


def limit_cells(limit: Limit) -> str:
    return f"| {limit.what} | {'must pass' if limit.most is None else limit.amount(limit.most)} |"


def is_missed(limit: Limit, numbers: Sequence[float]) -> bool:
    return limit.most is not None and max(numbers) > limit.most


def load_of_an_idle_machine() -> float:
    """The load, unless it is so high that times would say nothing about duralog."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        raise SystemExit(f"the load of the machine is {load:.1f}, with {cores} cores: run this when it is idle")
    return load


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--no-clone", action="store_true")
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--page", type=Path, default=PAGE)
    chosen = parser.parse_args()
    load = load_of_an_idle_machine()
    with tempfile.TemporaryDirectory() as place:
        wheel = chosen.wheel.resolve() if chosen.wheel else build_wheel(Path(place, "wheel"))
        minute = EmptyFolder(Path(place))
        first_minute(minute, wheel)
    if chosen.no_clone:
        former = _CLONE.search(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else None
        clone = former[1].strip() if former else "Not run yet."
    else:
        with tempfile.TemporaryDirectory() as place:
            cloned = EmptyFolder(Path(place))
            from_a_clone(cloned)
        clone = told(cloned.steps)
    limits = limits_table(minute.measured)
    document = TEXT.format(
        digest=readme_digest(),
        load=load,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        cores=os.cpu_count(),
        python=platform.python_version(),
        limits=limits,
        steps=told(minute.steps),
        clone=clone,
    )
    chosen.page.write_text(document, encoding="utf-8")
    print(f"\n{limits}\n\nwritten: {chosen.page}")
    return int(any(is_missed(limit, numbers) for limit, numbers in minute.measured.items()))


if __name__ == "__main__":
    sys.exit(main())
