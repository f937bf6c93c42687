"""The audit log: order, rotation, a full queue, a failing disk, and reading it back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from duralog.broker.audit import log as audit_log
from duralog.broker.audit.log import AuditLog, read_last

TIME_MS = 1_700_000_000_123


def opened(path: Path, **limits: int) -> AuditLog:
    return AuditLog(path, clock_ms=lambda: TIME_MS, **limits)


def test_lines_are_json_in_order(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.log")
    for number in range(100):
        log.write({"number": number, "text": "a\nb\u2028é" + "x" * 2000})
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text("ascii").splitlines()]
    assert [line["number"] for line in lines] == list(range(100))
    assert lines[0]["time"] == "2023-11-14T22:13:20.123Z"
    assert len(lines[0]["text"]) == 1003
    assert (log.written, log.dropped) == (100, 0)


def test_it_is_rotated_by_size(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = opened(path, max_bytes=500, max_files=2)
    for number in range(40):
        log.write({"number": number, "text": "x" * 100})
    log.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    for each in tmp_path.iterdir():
        assert each.stat().st_size <= 500
        assert each.stat().st_mode & 0o777 == 0o600
    found = [entry["number"] for entry in read_last(path, 100)]
    assert found == list(range(39, 39 - len(found), -1))
    assert [entry["number"] for entry in read_last(path, 3)] == [39, 38, 37]


def test_a_full_queue_drops_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "_MOST_WAITING", 5)
    monkeypatch.setattr(AuditLog, "_serve", lambda _: None)
    log = opened(tmp_path / "audit.log")
    for number in range(8):
        log.write({"number": number})
    assert log.dropped == 3
    log._write([log._queue.get_nowait() for _ in range(5)])  # type: ignore[misc]
    log._close_file()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert lines[0] | {"time": ""} == {"time": "", "event": "dropped", "count": 3}
    assert [line["number"] for line in lines[1:]] == [0, 1, 2, 3, 4]


def test_a_failing_disk_is_counted_and_reported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    monkeypatch.setattr(AuditLog, "_serve", lambda _: None)
    log = opened(path)
    with monkeypatch.context() as failing:

        def fail(*_: object) -> int:
            raise OSError(28, "No space left on device")

        failing.setattr(os, "write", fail)
        log._write([{"number": 1}])
        log._write([{"number": 2}])
    assert log.dropped == 2
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
    log._write([{"number": 3}])
    log._close_file()
    assert [entry.get("count", entry.get("number")) for entry in read_last(path, 9)] == [3, 2]


def test_cut_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"number": 1}\nnot json\n[1]\n\n{"number": 2}\n{"numb')
    assert read_last(path, 9) == [{"number": 2}, {"number": 1}]
    assert read_last(tmp_path / "missing", 9) == []
