"""The command as a process: pipes that close, interrupts, exit codes, and what it loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from duralog.command_line import main
from duralog.format import record_batch
from duralog.format.index_entries import OffsetIndexEntry, encode_offset_index
from duralog.format.record import Record
from duralog.storage.store import Store

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "duralog"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    values = [Record(key=b"key", value=b"v" * 100, timestamp_ms=1_700_000_000_000)] * 100
    path.write_bytes(b"".join(record_batch.encode(values, base_offset=first) for first in range(0, 100_000, 100)))
    return path


def loaded_modules(*arguments: object) -> set[str]:
    """The modules that a run of the command imports."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "duralog", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}


def test_a_look_into_an_index_loads_nothing_heavy(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(encode_offset_index([OffsetIndexEntry(5, 70)], 0))
    for arguments in (["--help"], ["dump", "--help"], ["dump", path]):
        assert loaded_modules(*arguments).isdisjoint({"numpy", "numba", "llvmlite", "pyarrow"})


def test_a_summary_loads_kernels_but_not_pyarrow(log: Path) -> None:
    modules = loaded_modules("dump", "--summary", log)
    assert "duralog" in modules
    assert "numpy" in modules
    assert "pyarrow" not in modules


@pytest.mark.parametrize("mode", [[], ["--records"], ["--records", "--json"]])
def test_a_reader_that_closes_the_pipe(log: Path, mode: list[str]) -> None:
    with subprocess.Popen(
        [*COMMAND, "dump", *mode, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert b"Traceback" not in complaints
    assert b"Exception ignored" not in complaints


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "--version",
        "dump --help",
        "topic create --help",
        "completion bash",
        "topic list DIR",
        "topic describe DIR --json",
        "topic create DIR -t other",
        "group list DIR",
        "produce DIR -t orders --key k --value v",
        "consume DIR -t orders",
        "lookup DIR -t orders -p 0 --offset 0",
        "stats DIR",
        "stats DIR --json",
        "verify DIR",
        "verify DIR --json",
        "repair DIR --dry-run",
        "compact DIR",
        "compact DIR --explain",
        "retain DIR",
        "doctor DIR",
    ],
)
def test_every_command_leaves_quietly_without_a_reader(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(str(tmp_path)) as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact"})
        store.partition("orders", 0).append([Record(key=b"k", value=b"v", timestamp_ms=1_700_000_000_000)])
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "argv", ["duralog", *line.replace("DIR", str(tmp_path)).split()])
    with open(writing, "w") as without_reader, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", without_reader)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 141
    assert "error" not in capsys.readouterr().err


def test_an_interrupt(log: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "dump", "--records", *[str(log)] * 200], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        # There is much more to write than a pipe holds: the command is in the middle of its work.
        process.send_signal(signal.SIGINT)
        while process.stdout.read(1 << 20):
            pass
        complaints = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert b"Traceback" not in complaints


def test_a_full_disk(log: Path) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run([*COMMAND, "dump", log], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr


def test_exit_codes(log: Path) -> None:
    assert run("dump", log).returncode == 0
    assert run("dump", log.parent / "missing").returncode == 1
    assert run("dump", "--nonsense", log).returncode == 2
    assert run("--version").stdout.startswith("duralog ")


def test_no_colour_and_no_progress_without_a_terminal(log: Path) -> None:
    result = run("dump", "--summary", *[log] * 20)
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.parametrize("closed", ["1>&-", "0<&- 1>&- 2>&-"])
def test_streams_that_the_caller_has_closed(tmp_path: Path, closed: str) -> None:
    """No file may get the number of one of them: what is written there would end in it."""
    with Store(str(tmp_path)) as store:
        store.create_topic("x", 1, {})
    command = f"{sys.executable} -m duralog produce {tmp_path} -t x --value v {closed}"
    told = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    with Store(str(tmp_path), read_only=True) as store:
        assert store.partition("x", 0).end_offset == 1


def test_help_that_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        told = subprocess.run([*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert told.returncode == 1
    assert told.stderr.startswith("duralog: error: No space left on device")
    assert told.stderr.count("\n") == 1


_INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *rest):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv[1:] = ["--version"]
from duralog.__main__ import main
main()
"""


def test_an_interrupt_while_the_command_is_loaded() -> None:
    def interrupted(how: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", _INTERRUPTED_IMPORT, how]
        return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)

    found = interrupted("handled")
    assert (found.returncode, found.stdout, found.stderr) == (-signal.SIGINT, "", "")
    assert interrupted("ignored").stdout.startswith("duralog ")
