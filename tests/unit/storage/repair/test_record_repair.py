"""Records that no coordinator can load: `duralog verify` finds them, `duralog repair` takes them out of the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.format.record import Record
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER, Quarantine
from duralog.storage.repair.record_repair import take_out_unloadable
from duralog.storage.store import Store
from oracle.hostile_batches import batch as odd_batch
from oracle.hostile_batches import message as old_message
from oracle.hostile_batches import wrapper as old_wrapper
from tests.support.broker.coordinator_cases import (
    GROUP_CASES,
    TRANSACTION_CASES,
    Case,
    KeyAndValue,
    Verdict,
    offset_key,
    offset_value,
    transaction,
)
from tests.support.faults.crashing_files import CrashingFiles, PowerLost
from tests.support.storage.recovery_files import FOLDER, NOW_MS, close, load, make_partition, offsets_on_disk, path

TIME_MS = 1_794_000_000_000
RIGHT: KeyAndValue = offset_key("g"), offset_value()
WRONG: KeyAndValue = b"\0\1x", b"\0\4"
LOG = "00000000000000000000.log"


def records(*content: KeyAndValue) -> list[Record]:
    return [Record(key=key, value=value, timestamp_ms=TIME_MS) for key, value in content]


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def verify(path: Path, *, findings: int = 0) -> list[dict[str, Any]]:
    rows = run("verify", "--json", path, code=1 if findings else 0)
    assert rows[-1]["findings"] == findings
    return rows


def offsets(path: Path, topic: str = CONSUMER_OFFSETS) -> list[int]:
    with Store(str(path), read_only=True) as store:
        return [record.offset for record in store.partition(topic, 0).read(0)]


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def quarantined(path: Path, topic: str = CONSUMER_OFFSETS) -> list[bytes]:
    return [file.read_bytes() for file in sorted((path / f"{topic}-0" / QUARANTINE_FOLDER).glob("*.bytes"))]


def make(path: Path, *batches: Sequence[KeyAndValue] | bytes, topic: str = CONSUMER_OFFSETS) -> None:
    """A directory with a coordinator's partition that holds these batches."""
    with Store(str(path)) as store:
        store.create_topic(topic, 1, {"cleanup.policy": "compact"})
        log = store.partition(topic, 0)
        for each in batches:
            if isinstance(each, bytes):
                log.append_batches(bytearray(each), origin=AppendOrigin.AS_IS)
            else:
                log.append(records(*each))


def test_a_record_is_found_and_taken_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make(data, [RIGHT, RIGHT], [RIGHT, WRONG, RIGHT], [RIGHT])
    log = data / f"{CONSUMER_OFFSETS}-0" / LOG
    before = log.read_bytes()
    (finding,) = [row for row in verify(data, findings=1) if "error" in row]
    second = record_batch.decode_header(before, 0).size_bytes
    third = second + record_batch.decode_header(before, second).size_bytes
    assert finding["fault"] == "UNLOADABLE"
    assert finding["error"].startswith("no coordinator can load the record at offset 3: OffsetCommitKey")
    assert (finding["file"], finding["position"]) == (str(log), second)

    untouched = contents(data)
    rehearsed = run("repair", "--json", "--dry-run", data)
    assert contents(data) == untouched
    done = run("repair", "--json", data)
    assert [row["actions"] for row in done if row["kind"] == "partition"] == [
        row["actions"] for row in rehearsed if row["kind"] == "partition"
    ]
    (actions,) = [row["actions"] for row in done if row["kind"] == "partition" and row["actions"]]
    assert ("quarantined", LOG) in {(action["action"], Path(action["file"]).name) for action in actions}
    assert done[-1] | {"quarantined_bytes": 0} == {
        "kind": "summary",
        "dry_run": False,
        "partitions": 2,
        "repaired": 1,
        "quarantined_bytes": 0,
        "left": 0,
    }

    verify(data)
    assert offsets(data) == [0, 1, 2, 4, 5]
    after = log.read_bytes()
    assert after[:second] == before[:second]
    assert after.endswith(before[third:])
    assert quarantined(data) == [before[second:third]]
    assert run("repair", "--json", "--restore", data)[-1]["repaired"] == 0
    assert log.read_bytes() == after


@pytest.mark.parametrize("cases", [GROUP_CASES, TRANSACTION_CASES], ids=[CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_only_what_cannot_be_loaded_goes(tmp_path: Path, cases: tuple[Case, ...]) -> None:
    """Each case in a partition of its own."""
    data, topic = tmp_path / "data", cases[0].topic
    right = RIGHT if topic == CONSUMER_OFFSETS else transaction("t")
    with Store(str(data)) as store:
        store.create_topic(topic, len(cases), {"cleanup.policy": "compact"})
        for number, case in enumerate(cases):
            for content in (right, case.make("g"), right):
                store.partition(topic, number).append(records(content))
    rows = verify(data, findings=sum(case.verdict is Verdict.UNLOADABLE for case in cases))
    findings = {row["partition"]: row["findings"] for row in rows if row.get("topic") == topic}
    notes = {Path(row["file"]).parent.name: row for row in rows if "unknown_records" in row}
    before = contents(data)
    run("repair", "--json", data)
    verify(data)
    after = contents(data)
    with Store(str(data), read_only=True) as store:
        for number, case in enumerate(cases):
            is_wrong = case.verdict is Verdict.UNLOADABLE
            assert findings[number] == is_wrong, case.name
            name = f"{topic}-{number}"
            assert (name in notes) == (case.verdict is Verdict.UNKNOWN), case.name
            if name in notes:
                assert (notes[name]["unknown_records"], notes[name]["offset"]) == (1, 1)
                assert ("Kafka 4.3.1 does not load the partition" in notes[name]["note"]) != case.kafka_goes_on
            left = [record.offset for record in store.partition(topic, number).read(0)]
            assert left == ([0, 2] if is_wrong else [0, 1, 2]), case.name
            log = f"{name}/{LOG}"
            assert (after[log] == before[log]) != is_wrong


def test_nothing_else_of_a_batch_changes(tmp_path: Path) -> None:
    """Producer, sequence, epoch, codec, times and offsets; the end of the log, even if nothing is left of the last."""
    data = tmp_path / "data"
    made = [
        record_batch.encode(
            [Record(key=key, value=value, timestamp_ms=TIME_MS + at) for at, (key, value) in enumerate(content)],
            base_offset=base,
            codec=codec,
            leader_epoch=0,
            producer_id=7,
            producer_epoch=1,
            base_sequence=base,
            is_transactional=True,
            last_offset=base + 9,
        )
        for base, content, codec in (
            (0, [WRONG, RIGHT, WRONG, RIGHT], Codec.NONE),
            (10, [RIGHT, WRONG], Codec.ZSTD),
            (20, [WRONG], Codec.GZIP),
        )
    ]
    make(data, *made)
    run("repair", "--json", data)
    verify(data)
    assert quarantined(data) == [b"".join(made)], "neighbours are one range"
    log = (data / f"{CONSUMER_OFFSETS}-0" / LOG).read_bytes()
    position = 0
    for old in made:
        was, now = record_batch.decode_header(old, 0), record_batch.decode_header(log, position)
        kept = [each for each in record_batch.decode_records(old, was) if each.key != WRONG[0]]
        assert record_batch.decode_records(log, now) == kept
        for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
            assert getattr(now, name) == getattr(was, name)
        assert now.is_transactional
        assert now.codec_id == (was.codec_id if kept else 0)
        assert now.max_timestamp_ms == (kept[-1].timestamp_ms if kept else was.max_timestamp_ms)
        position += now.size_bytes
    assert position == len(log)
    with Store(str(data)) as store:
        assert store.partition(CONSUMER_OFFSETS, 0).end_offset == 30
        producer = store.partition(CONSUMER_OFFSETS, 0).producer(7)
        assert producer is not None
        assert (producer.last_sequence, producer.transaction_first_offset) == (29, 0)


def test_a_batch_that_unpacks_to_nonsense_is_emptied(tmp_path: Path) -> None:
    """Its checksum is right: no disk has done that."""
    data = tmp_path / "data"
    nonsense = odd_batch(b"garbage", attributes=1, base_offset=1)
    make(data, [RIGHT], nonsense, [RIGHT])
    (finding,) = [row for row in verify(data, findings=1) if "error" in row]
    assert finding["fault"] == "DECOMPRESSION"
    run("repair", "--json", data)
    verify(data)
    assert offsets(data) == [0, 2]
    assert quarantined(data) == [nonsense]


def test_a_control_record_without_a_type_ends_no_transaction(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def of_producer(offset: int, key: bytes, value: bytes | None, **options: Any) -> bytes:
        return record_batch.encode(
            [Record(key=key, value=value, timestamp_ms=TIME_MS)],
            base_offset=offset,
            leader_epoch=0,
            producer_id=7,
            producer_epoch=0,
            is_transactional=True,
            **options,
        )

    make(data, of_producer(0, *RIGHT, base_sequence=0), of_producer(1, b"\0", b"", is_control=True), [RIGHT])
    verify(data, findings=1)
    run("repair", "--json", data)
    verify(data)
    with Store(str(data)) as store:
        log = store.partition(CONSUMER_OFFSETS, 0)
        assert (log.last_stable_offset, log.end_offset) == (0, 3)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats(tmp_path: Path, magic: int) -> None:
    data = tmp_path / "data"
    make(data)
    inner = b"".join(
        old_message(magic, *content, offset=at + (0 if magic else 2))
        for at, content in enumerate((RIGHT, WRONG, RIGHT))
    )
    with Store(str(data)) as store:
        partition = store.partition(CONSUMER_OFFSETS, 0)
        plain = old_message(magic, *RIGHT, offset=0), old_message(magic, *WRONG, offset=1)
        for each in (*plain, old_wrapper(magic, inner, offset=4)):
            partition.append_batches(bytearray(each), origin=AppendOrigin.AS_IS)
    verify(data, findings=2)
    run("repair", "--json", data)
    verify(data)
    assert offsets(data) == [0, 2, 4]
    assert quarantined(data) == [plain[1] + old_wrapper(magic, inner, offset=4)]
    with Store(str(data), read_only=True) as store:
        assert store.partition(CONSUMER_OFFSETS, 0).end_offset == 5


def test_damage_and_a_record_that_cannot_be_loaded(tmp_path: Path) -> None:
    """The last segment ends at the damage; `--restore` brings what is behind, and takes its wrong records out, too."""
    data = tmp_path / "data"
    make(data, [WRONG, RIGHT], [RIGHT], [WRONG, RIGHT])
    log = data / f"{CONSUMER_OFFSETS}-0" / LOG
    content = bytearray(log.read_bytes())
    first = record_batch.decode_header(content, 0).size_bytes
    content[first + 70] ^= 1
    log.write_bytes(content)
    verify(data, findings=3)
    run("repair", "--json", data)
    verify(data)
    assert offsets(data) == [1]
    run("repair", "--json", "--restore", data)
    verify(data)
    assert offsets(data) == [1, 4]


def test_other_topics_hold_what_they_want(tmp_path: Path) -> None:
    make(tmp_path / "data", [WRONG], topic="mine")
    verify(tmp_path / "data")


def test_a_cleaned_log_is_cleaned_again_from_the_repair_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make(data, [RIGHT, WRONG], [RIGHT])
    with Store(str(data)) as store:
        store.partition(CONSUMER_OFFSETS, 0).roll()
        store.compact(CONSUMER_OFFSETS, 0, again=True)
    rows = run("repair", "--json", data)
    assert [row["action"] for row in rows if row["kind"] == "action"] == ["corrected"]
    verify(data)


# Crashes

BATCHES = {
    0: b"".join(
        record_batch.encode(records(*content), base_offset=base, leader_epoch=0)
        for base, content in ((0, [RIGHT, WRONG]), (2, [RIGHT, RIGHT]), (4, [WRONG]))
    ),
    5: b"".join(
        record_batch.encode(records(*content), base_offset=base, leader_epoch=0)
        for base, content in ((5, [WRONG, RIGHT]), (7, [RIGHT]))
    ),
}


def made() -> CrashingFiles:
    disk = CrashingFiles()
    make_partition(disk, BATCHES)
    close(load(disk))
    return disk


def take_out(disk: CrashingFiles) -> bool:
    return take_out_unloadable(disk, FOLDER, CONSUMER_OFFSETS, clock=lambda: NOW_MS, before_change=lambda _: None)


def kept_in_quarantine(disk: CrashingFiles) -> list[bytes]:
    quarantine = Quarantine(disk, FOLDER, lambda: NOW_MS)
    return [(file := quarantine.open(report)).read(0, file.size) for report in quarantine.reports()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_point_loses_nothing(seed: int) -> None:
    finished = made()
    begin = finished.changes
    assert take_out(finished)
    close(load(finished, clean=True))
    wanted = {base: finished.read_all(path(base)) for base in (0, 5)}
    assert len(kept_in_quarantine(finished)) == 3
    assert offsets_on_disk(finished) == {0: [(0, 1), (2, 3), (4, 4)], 5: [(5, 6), (7, 7)]}
    for change in range(finished.changes - begin + 1):
        disk = made()
        disk.lose_power_after(change)
        with suppress(PowerLost):
            take_out(disk)
            close(load(disk, clean=True))
        disk = disk.after_power_loss(seed)
        close(load(disk, clean=True))
        for base, content in BATCHES.items():
            found = disk.read_all(path(base))
            assert found in (content, wanted[base]), change
            if found != content:
                assert any(content.startswith(each) for each in kept_in_quarantine(disk)), change
        take_out(disk)
        close(load(disk, clean=True))
        assert {base: disk.read_all(path(base)) for base in (0, 5)} == wanted, change
        assert sorted(kept_in_quarantine(disk)) == sorted(kept_in_quarantine(finished)), change
    assert not take_out(finished)


def test_what_stops_transactions_is_in_the_report(tmp_path: Path) -> None:
    make(tmp_path / "data", [(b"\0\0x", b"")], topic=TRANSACTION_STATE)
    run("repair", "--json", tmp_path / "data")
    (report,) = (tmp_path / "data" / f"{TRANSACTION_STATE}-0" / QUARANTINE_FOLDER).glob("*.json")
    told = json.loads(report.read_text())
    assert told["fault"] == "UNLOADABLE"
    assert "does not load the transactional ids after it" in told["kafka"]
    assert (told["offset_before"], told["offset_after"]) == (-1, -1)
