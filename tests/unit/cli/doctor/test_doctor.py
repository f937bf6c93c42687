"""`duralog doctor` as a command, on directories of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.cli.doctor import compiled_kernels
from duralog.cli.doctor.check import Check, Level
from duralog.cli.doctor.command import all_checks, write_checks
from duralog.cli.doctor.compiled_kernels import KernelFacts
from duralog.cli.doctor.directory import directory_checks, last_timestamp_ms, read_directory
from duralog.cli.doctor.machine import ThisMachine
from duralog.cli.voice.output import Output
from duralog.format.index_entries import TimeIndexEntry, encode_time_index
from tests.support import commands
from tests.support.doctored_machine import NOW_MS, MadeUpMachine
from tests.support.places import GOLDEN

HOUR_MS = 3_600_000
WRITTEN_MS = NOW_MS - 60_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with duralog.open(path) as opened:
        opened.create_topic("orders", 2, {"message.timestamp.after.max.ms": 1 << 62})
        log = opened.partition("orders", 0)
        log.append([duralog.Record(value=b"first", timestamp_ms=NOW_MS - HOUR_MS)])
        log.roll()
        log.append([duralog.Record(value=b"second", timestamp_ms=NOW_MS - 1000)])
    for file in path.rglob("*"):
        os.utime(file, (WRITTEN_MS / 1000, WRITTEN_MS / 1000))
    return path


doctor = partial(commands.run, "doctor")


objects = partial(commands.objects, "doctor")


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def of_directory(machine: MadeUpMachine, path: Path, name: str) -> Check:
    (check,) = [check for check in directory_checks(machine, read_directory(str(path))) if check.name == name]
    return check


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks that start programs, and would depend on what is installed here."""
    monkeypatch.setattr(ThisMachine, "run", lambda *_: 'openjdk version "21.0.1"')
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


@pytest.mark.usefixtures("without_java")
def test_a_directory_is_left_as_it_is(store: Path) -> None:
    before = contents(store)
    rows = objects(store)
    assert contents(store) == before
    names = [row["name"] for row in rows if row["kind"] == "check"]
    assert names[:2] == ["python", "packages"]
    assert {"fsync", "space", "directory", "closed", "clock"} <= set(names)
    assert all(row["why"] for row in rows[:-1])
    levels = [row["level"] for row in rows[:-1]]
    assert rows[-1] == {"kind": "summary", **{level: levels.count(level) for level in ("ok", "warn", "fail")}}


@pytest.mark.usefixtures("without_java")
def test_the_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThisMachine, "python", MadeUpMachine().python)
    names = {row.get("name") for row in objects()}
    assert "python" in names
    assert names.isdisjoint({"fsync", "directory", "clock"})


@pytest.mark.usefixtures("without_java")
def test_what_fails_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    old = MadeUpMachine().python._replace(version=(3, 9, 1))
    monkeypatch.setattr(ThisMachine, "python", old)
    shown = doctor(store, code=1).stdout
    assert "fail  python " in shown
    assert "do:  install a 64-bit CPython 3.11 or newer" in shown
    quiet = doctor("--quiet", "--data", store, code=1).stdout
    assert "fail  python " in quiet
    assert "\nok " not in quiet
    assert not quiet.startswith("ok ")


def test_wrong_usage(store: Path) -> None:
    assert "give one of them" in doctor(store, "--data", store, code=2).stderr


def test_lines(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    checks = [
        Check("python", Level.OK, "CPython 3.11.2", "it is needed"),
        Check("swap", Level.WARN, "1 GiB in use", "it is slow", "sysctl -w vm.swappiness=1"),
    ]

    for why in (False, True):
        output = Output(sys.stdout.buffer)
        write_checks(output, checks, why=why)
        output.flush()
        lines = capsysbinary.readouterr().out.decode().splitlines()
        assert lines[0] == "ok    python  CPython 3.11.2"
        assert ("              why: it is needed" in lines) is why
        assert lines[-5:] == [
            "warn  swap    1 GiB in use",
            "              why: it is slow",
            "              do:  sysctl -w vm.swappiness=1",
            "",
            "2 checks: 1 warning",
        ]
    narrow = Output(sys.stdout.buffer, width=60)
    write_checks(narrow, [Check("swap", Level.WARN, "word " * 30, "why not", "x" * 80)], why=False)
    narrow.flush()
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert max(len(line) for line in lines if "x" * 80 not in line) <= 60
    assert any("x" * 80 in line for line in lines), "what is to be copied is not broken"


def test_everything_is_well_on_a_good_machine(store: Path) -> None:
    machine = MadeUpMachine()
    checks = list(all_checks(machine, str(store)))
    # The test's own folder is where it is: its mount is not a made-up one.
    assert {check.level for check in checks} == {Level.OK}


def test_what_is_in_a_directory(store: Path) -> None:
    facts = read_directory(str(store))
    assert (facts.partitions, facts.segments, facts.is_clean, facts.is_there) == (2, 3, True, True)
    assert facts.newest_ms == NOW_MS - 1000
    assert facts.newest_in == "orders-0"
    machine = MadeUpMachine()
    assert ": 2 partitions, 3 segments, " in of_directory(machine, store, "directory").found
    assert of_directory(machine, store, "closed").found == "cleanly"


def test_a_link_to_a_directory(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(store)
    assert read_directory(str(link)).path == str(store.resolve())


def test_a_crash_and_a_holder(store: Path) -> None:
    (store / ".kafka_cleanshutdown").unlink()
    machine = MadeUpMachine()
    crashed = of_directory(machine, store, "closed")
    assert crashed.level is Level.WARN
    assert f"duralog verify {store.resolve()}" in crashed.change
    machine.holder = "process 17 (java)"
    assert of_directory(machine, store, "closed").level is Level.OK
    assert of_directory(machine, store, "in use by").found == "process 17 (java)"


@pytest.mark.usefixtures("without_java")
def test_a_directory_in_use(store: Path) -> None:
    with duralog.open(store):
        rows = {row.get("name"): row for row in objects(store)}
        assert rows["closed"]["found"] == "not yet: it is in use"
        assert f"process {os.getpid()}" in rows["in use by"]["found"]


def test_times_in_the_future(store: Path) -> None:
    machine = MadeUpMachine()
    assert of_directory(machine, store, "clock").level is Level.OK
    machine.now_ms = WRITTEN_MS - 2 * HOUR_MS
    check = of_directory(machine, store, "clock")
    assert check.level is Level.WARN
    assert "the clock was set back" in check.found
    for file in store.rglob("*.log"):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    check = of_directory(machine, store, "clock")
    assert check.level is Level.WARN
    assert "orders-0 has records of 2027-01-15T07:59:59.000Z" in check.found
    machine.now_ms = 86_400_000
    assert of_directory(machine, store, "clock").level is Level.FAIL


def test_the_last_entry_of_a_time_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.timeindex"
    for count in (0, 1, 2, 5, 64):
        entries = [TimeIndexEntry(1_000 + number, number) for number in range(count)]
        data = encode_time_index(entries, 0)
        for zeros in (0, 12, 120):
            path.write_bytes(data + bytes(zeros))
            assert last_timestamp_ms(str(path)) == (999 + count if count else -1)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    machine = MadeUpMachine()
    check = of_directory(machine, tmp_path / "a" / "b", "directory")
    assert check.level is Level.OK
    assert check.found.endswith(f"creates it, in {tmp_path.resolve()}")
    machine.writable = False
    assert of_directory(machine, tmp_path / "a" / "b", "directory").level is Level.FAIL
    assert not (tmp_path / "a").exists()


def test_unreadable_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeUpMachine(writable=False)
    assert "can only read it" in of_directory(machine, store, "directory").found

    def refused(path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refused)
    check = of_directory(machine, store, "directory")
    assert check.level is Level.FAIL
    assert "Permission denied" in check.found


def test_a_directory_of_kafka(tmp_path: Path) -> None:
    path = tmp_path / "kafka"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    facts = read_directory(str(path))
    assert facts.partitions > 5
    assert facts.newest_ms > 1_600_000_000_000


def test_fsync_is_measured_and_nothing_left(tmp_path: Path) -> None:
    taken = ThisMachine().sync_seconds(str(tmp_path), 3)
    assert taken is not None
    assert 1 <= len(taken) <= 3
    assert all(seconds > 0 for seconds in taken)
    assert not list(tmp_path.iterdir())
    assert ThisMachine().sync_seconds(str(tmp_path / "missing"), 3) is None


def test_this_machine() -> None:
    machine = ThisMachine()
    assert machine.read("/nowhere/at/all") is None
    assert machine.run("/nowhere/at/all") is None
    assert machine.run("false") is None
    assert machine.package_version("no-such-package") is None
    assert machine.package_version("numba")
    assert any(text.startswith("numba") for text in machine.requirements())
    assert machine.space("/nowhere/at/all") is None


def test_the_kernels_of_this_machine() -> None:
    from duralog.kernels.compilation.catalog import all_kernels

    names = set(all_kernels())
    assert {"scan_batches", "decode_batches", "put_offsets"} <= names
    facts = ThisMachine().kernels()
    assert isinstance(facts, KernelFacts)
    assert facts.ready + facts.missing == len(names)


def test_a_kernel_that_is_not_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import duralog.kernels.compile as compiling
    from duralog.kernels.compilation import catalog, just_in_time, machine_code

    def never_seen(number: int) -> int:
        return number + 12345

    fresh = compiling.Kernel(never_seen, "int64(int64)")
    monkeypatch.setattr(catalog, "all_kernels", lambda: {"never_seen": fresh})
    monkeypatch.setattr(compiling, "on_compile", None)
    monkeypatch.setattr(just_in_time, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(machine_code, "LEVEL", None)
    assert (compiled_kernels.kernel_facts().ready, compiled_kernels.kernel_facts().missing) == (0, 1)
    assert compiling.on_compile is None
    told: list[str] = []
    assert compiled_kernels.compile_all(told.append) == 1
    assert told[0] == "never_seen"
    assert fresh(1) == 12346
    assert compiled_kernels.kernel_facts().missing == 0


@pytest.mark.parametrize("under", ["", "folder/data"])
def test_a_file_where_the_directory_would_be(tmp_path: Path, under: str) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    check = of_directory(MadeUpMachine(), file / under, "directory")
    assert check.level is Level.FAIL
    assert f"{file} is a file" in check.found
