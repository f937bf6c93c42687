"""The audit log: order, rotation, a full queue, a failing disk, and reading it back."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from duralog.broker.audit import log as audit_log
from duralog.broker.audit.changes import CHANGES
from duralog.broker.audit.log import AuditLog, read_last
from duralog.broker.audit.recorder import AuditRecorder, Changed
from duralog.broker.handlers import load_apis
from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import Request
from duralog.storage.metadata.acls import Operation, ResourceType

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
    names = ["audit-refusals.log", "audit.log", "audit.log.1", "audit.log.2"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
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
    log._close_files()
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
    log._close_files()
    assert [entry.get("count", entry.get("number")) for entry in read_last(path, 9)] == [3, 2]


def test_a_flood_of_refusals_leaves_the_history_of_changes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    times_ms = iter(range(TIME_MS, TIME_MS + 10_000))
    log = AuditLog(path, clock_ms=lambda: next(times_ms), max_bytes=2_000, max_files=2)
    log.write({"event": "change", "number": 0})
    for number in range(1, 200):
        log.write({"event": "refusal" if number % 2 else "login failure", "number": number})
    log.write({"event": "change", "number": 200})
    log.close()
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == [0, 200]
    found = read_last(path, 999)
    assert [each["number"] for each in found[:3]] == [200, 199, 198]
    assert found[-1]["number"] == 0
    assert len(found) < 100
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_what_is_not_a_regular_file_takes_everything(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    log = opened(path)
    log.write({"event": "change", "number": 1})
    log.write({"event": "refusal", "number": 2})
    reader = os.open(path, os.O_RDONLY)
    log.close()
    assert [json.loads(line)["number"] for line in os.read(reader, 9_999).splitlines()] == [1, 2]
    os.close(reader)
    assert list(tmp_path.iterdir()) == [path]


def test_refusals_leave_room_for_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "_MOST_WAITING", 8)
    monkeypatch.setattr(AuditLog, "_serve", lambda _: None)
    log = opened(tmp_path / "audit.log")
    for number in range(20):
        log.write({"event": "refusal", "number": number})
    for number in range(4):
        log.write({"event": "change", "number": number})
    assert log.dropped == 16
    waiting = [log._queue.get_nowait() for _ in range(8)]
    assert [entry["event"] for entry in waiting if entry] == ["refusal"] * 4 + ["change"] * 4
    log._close_files()


def test_lost_entries_are_one_line_of_the_brokers_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AuditLog, "_serve", lambda _: None)
    log = opened(tmp_path / "audit.log")
    for _ in range(50):
        log.drop(3)
        log._write([{"number": 1}])
    log.close()
    assert [each.getMessage().split()[0] for each in caplog.records] == ["3", "147"]


def test_the_refusals_of_a_request_are_one_entry(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    soon: list[Callable[[], None]] = []
    recorder = recorder_of(opened(path), soon, [0.0])
    request = Request(3, 1, 0, "c", None, memoryview(b""), principal=Principal("eve"))
    for number in range(50_000):
        recorder.refused(request, Operation.DESCRIBE, ResourceType.TOPIC, f"{number}" + "x" * 500)
    recorder.refused(request, Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    assert len(soon) == 1
    soon.pop()()
    recorder.refused(request, Operation.READ, ResourceType.TOPIC, "last")
    recorder.close()
    last, single, several = read_last(path, 9)
    assert (several["count"], several["operation"], len(several["resources"])) == (50_000, "DESCRIBE", 5)
    assert several["resource"] == several["resources"][0] == "0" + "x" * 248
    assert (single["resource"], "count" in single, "resources" in single) == ("kafka-cluster", False, False)
    assert last["resource"] == "last"


def test_refusals_and_failed_logins_are_limited_and_changes_are_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    soon: list[Callable[[], None]] = []
    now_ms = [0.0]
    recorder = recorder_of(opened(path), soon, now_ms)
    for _ in range(1_000):
        request = Request(3, 1, 0, "c", None, memoryview(b""), principal=Principal("eve"))
        recorder.refused(request, Operation.DESCRIBE, ResourceType.TOPIC, "t")
        recorder.login_failed("h", None, "SSL_HANDSHAKE_FAILED", "a reason")
        soon.pop()()
    recorder.changed(request, [Changed("TOPIC", "t", 0)] * 200)
    now_ms[0] = 1_000.0
    for _ in range(20):
        recorder.login_failed("h", None, "SSL_HANDSHAKE_FAILED", "a reason")
    recorder.close()
    entries = read_last(path, 9_999)
    assert Counter(each["event"] for each in entries if each["event"] != "dropped") == {
        "refusal": 100,
        "login failure": 110,
        "change": 200,
    }
    dropped: Counter[str] = Counter()
    for each in entries:
        if each["event"] == "dropped":
            dropped[each["detail"].split()[0]] += each["count"]
    assert dropped == {"refusal": 900, "login": 910}
    assert recorder.log.dropped == 1_810


def test_the_failures_of_a_request_are_one_entry_for_each_result(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    recorder = recorder_of(opened(path), [], [0.0])
    request = Request(3, 1, 0, "c", None, memoryview(b""), principal=Principal("eve"))
    changes = [Changed("TOPIC", None, 100, f"id {number}" + "x" * 10_000_000) for number in range(3)]
    recorder.changed(request, [*changes, *(Changed("TOPIC", f"t{number}", 3) for number in range(1_000))])
    recorder.changed_itself("a part", Changed("TOPIC", "own", 56))
    recorder.close()
    assert path.read_bytes() == b""
    own, unknown, ids = read_last(path, 9)
    assert (ids["event"], ids["result"], ids["count"], ids["resource"]) == ("failure", "UNKNOWN_TOPIC_ID", 3, None)
    assert len(ids["detail"]) == 1_003
    assert (unknown["count"], unknown["resources"]) == (1_000, ["t0", "t1", "t2", "t3", "t4"])
    assert (own["api"], own["resource"], own["result"]) == ("a part", "own", "KAFKA_STORAGE_ERROR")


def test_a_quota_is_recorded_with_the_entity_of_the_answer() -> None:
    def entry(rate: float, **names: str | None) -> SimpleNamespace:
        entity = [SimpleNamespace(entity_type=kind, entity_name=name) for kind, name in names.items()]
        return SimpleNamespace(entity=entity, ops=[SimpleNamespace(key="rate", value=rate, remove=False)])

    def answer(code: int, **names: str | None) -> dict[str, object]:
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in names.items()]
        return {"error_code": code, "entity": entity}

    asked = [entry(1, user="a"), entry(1, user="a"), entry(2, user="b", client=None)]
    found = CHANGES["AlterClientQuotas"](
        SimpleNamespace(validate_only=False, entries=asked),
        {"entries": [answer(42, user="a"), answer(0, client=None, user="b")]},
    )
    assert list(found) == [
        Changed("QUOTA", "user a", 42, "rate=1"),
        Changed("QUOTA", "client <default>, user b", 0, "rate=2"),
    ]


def test_a_moved_partition_is_recorded_with_its_new_directory() -> None:
    def directory(path: str, *numbers: int) -> SimpleNamespace:
        return SimpleNamespace(path=path, topics=[SimpleNamespace(name="t", partitions=numbers)])

    answered = [{"partition_index": 0, "error_code": 0}, {"partition_index": 1, "error_code": 57}]
    found = CHANGES["AlterReplicaLogDirs"](
        SimpleNamespace(dirs=[directory("/a", 0), directory("/gone", 1)]),
        {"results": [{"topic_name": "t", "partitions": answered}]},
    )
    assert list(found) == [
        Changed("TOPIC", "t", 0, "partition 0 to /a"),
        Changed("TOPIC", "t", 57, "partition 1 to /gone"),
    ]


def test_every_api_that_changes_something_is_recorded() -> None:
    """A new API goes into one of these: it changes something that an operator wants to find again, or not."""
    names = {api.name for api in load_apis().values()}
    assert CHANGES.keys() <= names
    reading = {name for name in names if name.startswith(("Describe", "List", "Fetch", "Find", "OffsetF", "Sasl"))}
    of_records = {"Produce", "OffsetCommit", "TxnOffsetCommit", "WriteTxnMarkers", "EndTxn", "InitProducerId"}
    of_records |= {"AddOffsetsToTxn", "AddPartitionsToTxn"}
    of_members = {"ConsumerGroupHeartbeat", "Heartbeat", "JoinGroup", "LeaveGroup", "SyncGroup"}
    others = {"ApiVersions", "ConsumerGroupDescribe", "Metadata"}  # Metadata records the topics that it creates itself.
    assert names - CHANGES.keys() == reading | of_records | of_members | others


def recorder_of(log: AuditLog, soon: list[Callable[[], None]], now_ms: list[float]) -> AuditRecorder:
    return AuditRecorder(log, lambda _: "Metadata", lambda _: None, call_soon=soon.append, clock_ms=lambda: now_ms[0])


def test_a_line_after_a_cut_one_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"number": 0}\n{"numb')
    monkeypatch.setattr(AuditLog, "_serve", lambda _: None)
    log = opened(path)
    log._write([{"number": 1}])
    real_write = os.write
    with monkeypatch.context() as failing:

        def write_some(descriptor: int, data: bytes) -> int:
            if len(data) < 5:
                raise OSError(28, "No space left on device")
            return real_write(descriptor, data[: len(data) - 4])

        failing.setattr(os, "write", write_some)
        log._write([{"number": 2}])
    log._write([{"number": 3}])
    log._close_files()
    assert [entry.get("count", entry.get("number")) for entry in read_last(path, 9)] == [3, 1, 1, 0]


def test_cut_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"number": 1}\nnot json\n[1]\n\n{"number": 2}\n{"numb')
    assert read_last(path, 9) == [{"number": 2}, {"number": 1}]
    assert read_last(tmp_path / "missing", 9) == []
