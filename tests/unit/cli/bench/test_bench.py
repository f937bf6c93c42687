"""`duralog bench`: what it measures, what it says about it, and that it leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.cli.bench import command as bench_command
from duralog.cli.bench import scratch as bench_scratch
from duralog.cli.bench.data import Workload
from duralog.cli.bench.latencies import Latencies
from duralog.cli.bench.machine import PASSES, machine_rows
from duralog.cli.bench.rows import (
    APPEND_BATCHES,
    BROKER,
    LOG,
    MACHINE,
    PRODUCE,
    READ,
    WRITE,
    WRITE_SYNC,
    Row,
    row_object,
    share_of_limit,
    what_limits_broker,
    what_limits_log,
    write_rows,
)
from duralog.cli.bench.scratch import place_for, scratch_folder
from duralog.cli.voice.output import Output
from duralog.errors import DuralogError
from duralog.format import batches as reference
from duralog.format.compression import Codec
from tests.support import commands

SECONDS = 60


bench = partial(commands.run, "bench")


objects = partial(commands.objects, "bench")


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


# On a directory


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bench")
    rows = objects("--size", "2m", "--record-size", "200", "--data", folder)
    assert not names(folder)
    return rows


def test_everything_is_measured(measured: list[dict[str, Any]]) -> None:
    found = {(row["of"], row["name"]): row for row in measured[:-1]}
    assert [name for of, name in found if of == MACHINE] == [WRITE, WRITE_SYNC, READ, "CRC-32C"]
    assert [name for of, name in found if of == LOG] == [
        *(APPEND_BATCHES, "append records", "append tables", "read tables", "read records"),
        *("verify", "recover", "compact"),
    ]
    assert all(row["seconds"] > 0 and row["bytes_per_second"] > 0 for row in found.values())
    assert measured[-1]["what_limits"].endswith(".")


def test_the_amounts_are_what_was_asked_for(measured: list[dict[str, Any]]) -> None:
    rows = {row["name"]: row for row in measured[:-1]}
    records = (2 << 20) // 200
    for name in (APPEND_BATCHES, "append tables", "read tables", "verify", "recover", "compact"):
        assert rows[name]["records"] == records, name
        assert rows[name]["bytes"] == records * 200
        # A batch of 64 KiB has a header of 61 bytes, a record some of its own.
        assert records * 200 < rows[name]["file_bytes"] < records * 220, name
    assert rows["read records"]["records"] == records // 8
    assert rows[WRITE]["bytes"] == 2 << 20


def test_a_codec(tmp_path: Path) -> None:
    rows = {row.get("name"): row for row in objects("--size", "1m", "--record-size", "1k", "--codec", "zstd", tmp_path)}
    assert rows[APPEND_BATCHES]["file_bytes"] < 0.8 * rows[APPEND_BATCHES]["bytes"]
    assert rows["read tables"]["records"] == rows[APPEND_BATCHES]["records"] == 1024


def test_records_larger_than_the_size(tmp_path: Path) -> None:
    rows = {row.get("name"): row for row in objects("--size", "1k", "--record-size", "2m", tmp_path)}
    assert rows[APPEND_BATCHES]["records"] == rows["read records"]["records"] == 1


def test_lines(tmp_path: Path) -> None:
    lines = bench("--size", "1m", tmp_path).stdout.splitlines()
    assert lines[0].split() == ["what", "rate", "records_per_s", "seconds", "of_the_limit"]
    assert lines[5].startswith("log: append batches ")
    assert " of write" in lines[5]
    assert lines[-2] == ""
    assert lines[-1].startswith("The ")


def test_quiet_is_the_sentence_alone(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output = Output(sys.stdout.buffer, quiet=True)
    write_rows(output, rows_of(3, 2, 1), "The disk is the limit.")
    output.flush()
    assert capsysbinary.readouterr().out == b"The disk is the limit.\n"


def test_a_log_directory_is_not_touched(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with duralog.open(store) as opened:
        opened.create_topic("orders", 1)
    before = names(tmp_path)
    assert place_for(str(store)) == str(tmp_path.resolve())
    bench("--size", "1m", store)
    assert names(tmp_path) == before


def test_no_place_next_to_a_log_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta.properties").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DuralogError, match="give an empty folder on that disk"):
        place_for(str(tmp_path))


def test_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no such directory" in bench(tmp_path / "missing", code=1).stderr
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bench("--size", "1m")
    assert not names(tmp_path)


def test_no_room(tmp_path: Path) -> None:
    assert "give a smaller --size" in bench("--size", "1000t", tmp_path, code=1).stderr
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "1", "."], "are for a broker"),
        (["--acks", "all", "."], "are for a broker"),
        (["--size", "1m", "localhost:9092"], "--size is for a directory"),
        (["--seconds", "1", "--records", "1", "localhost:9092"], "give one of them"),
        (["--acks", "2", "localhost:9092"], "it is 0, 1 or all"),
        (["--record-size", "8", "."], "a record has from 32 to"),
        (["--record-size", "much", "."], "is not a size"),
        ([".", "--data", "."], "give one of them"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    assert said in " ".join(bench(*arguments, code=2).stderr.replace("│", " ").split())


def test_an_unknown_codec(tmp_path: Path) -> None:
    bench("--codec", "rar", tmp_path, code=2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "duralog", "bench", "--size", "256m", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + SECONDS
        while not any(tmp_path.rglob("written")) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(number)
        _, complaints = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert b"Traceback" not in complaints
    assert not names(tmp_path)


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), scratch_folder(str(tmp_path), 0) as folder:
        assert Path(folder, "file").write_text("x") / 0
    assert not names(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_while_the_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree

    def removed_by_an_impatient_user(folder: str) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", removed_by_an_impatient_user)
    before = signal.getsignal(signal.SIGINT)
    with scratch_folder(str(tmp_path), 0) as folder:
        Path(folder, "file").write_text("x")
    assert not names(tmp_path)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_memory_does_not_grow_with_the_size() -> None:
    small, large = Workload(64 << 20, 100, Codec.NONE), Workload(64 << 30, 100, Codec.NONE)
    assert len(small.records) == len(large.records) == (8 << 20) // 100
    assert large.times() == 1024 * small.times()


def test_batches_are_what_a_producer_sends() -> None:
    work = Workload(1 << 20, 100, Codec.ZSTD)
    found = []
    for data, count in work.batches:
        (batch,) = reference.scan(bytes(data))
        assert batch.base_offset >= 0
        found += list(reference.decode_records(bytes(data), batch))
        assert count == batch.record_count
    assert [(record.key, record.value) for record in found] == [(one.key, one.value) for one in work.records]
    assert {len(one.key or b"") + len(one.value or b"") for one in work.records} == {100}
    assert len({one.key for one in work.records}) == len(work.records)


# What is said about it


def rows_of(write: int, sync: int, append: int) -> list[Row]:
    def row(of: str, name: str, rate: int, limit: str = "") -> Row:
        return Row(of=of, name=name, seconds=1.0, data_bytes=rate, file_bytes=rate, limit=limit)

    return [row(MACHINE, WRITE, write), row(MACHINE, WRITE_SYNC, sync), row(LOG, APPEND_BATCHES, append, WRITE)]


def test_what_limits_a_log() -> None:
    assert what_limits_log(rows_of(1000 << 20, 100 << 20, 500 << 20)).startswith("The disk is the limit")
    sentence = what_limits_log(rows_of(1000 << 20, 800 << 20, 500 << 20))
    assert sentence.startswith("The CPU is the limit: appends write 500 MiB/s, 50% of what this machine writes")
    assert ", as much as this machine writes" in what_limits_log(rows_of(400 << 20, 800 << 20, 500 << 20))


def test_other_busy_processes_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 1.0, 1.0))
    monkeypatch.setattr(bench_command, "_on_directory", lambda *_, **__: rows_of(3, 2, 1))
    assert "a load of 99.0 on" in bench(tmp_path).stderr
    assert bench("--quiet", tmp_path).stderr == ""


def test_a_limit_is_the_fastest_pass(tmp_path: Path) -> None:
    advanced: list[int] = []
    rows = list(machine_rows(str(tmp_path), 1 << 20, lambda _: None, advanced.append))
    assert sum(advanced) == 4 * PASSES << 20
    assert {row.data_bytes for row in rows} == {1 << 20}
    assert not names(tmp_path)


def test_shares_are_of_files_not_of_data() -> None:
    packed = Row(of=LOG, name="x", seconds=2.0, data_bytes=1000, file_bytes=100, records=10, limit=WRITE)
    rows = [*rows_of(100, 1, 1), packed]
    assert share_of_limit(packed, rows) == 0.5
    fields = row_object(packed, rows)
    assert (fields["bytes_per_second"], fields["records_per_second"], fields["share_of_limit"]) == (500, 5, 0.5)
    assert "share_of_limit" not in row_object(rows[0], rows)


def test_what_limits_a_broker() -> None:
    def produced(cpu: float) -> list[Row]:
        return [Row(of=BROKER, name=PRODUCE, seconds=2.0, data_bytes=1, records=1, cpu_seconds=cpu)]

    assert what_limits_broker(produced(1.9)).startswith("This client is the limit: it computed for 95%")
    assert what_limits_broker(produced(0.5)).startswith("The broker, its disk or the network is the limit")


def test_percentiles() -> None:
    latencies = Latencies()
    assert latencies.percentiles_ms() == [0.0, 0.0, 0.0]
    for number in range(1, 10_001):
        latencies.add(number / 100)
    p50, p99, p999 = latencies.percentiles_ms()
    assert (p50, p99, p999) == (
        pytest.approx(50, rel=0.021),
        pytest.approx(99, rel=0.021),
        pytest.approx(99.9, rel=0.021),
    )
    assert p999 <= latencies.longest_ms == 100.0
    latencies.add(0.0)
    latencies.add(1e12)
    assert latencies.to_dict()["max"] == 1e12
    assert latencies.count == 10_002


def test_signals_in_another_thread() -> None:
    import threading

    came: list[str] = []

    def work() -> None:
        with bench_scratch.ended_by_signals():
            came.append("here")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert came == ["here"]
