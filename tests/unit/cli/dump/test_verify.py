"""`duralog dump --verify`: indexes that Kafka wrote pass, every kind of lie in one is found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from duralog.format import batches, record_batch
from duralog.format.compression import Codec
from duralog.format.index_entries import (
    AbortedTransaction,
    OffsetIndexEntry,
    TimeIndexEntry,
    decode_transaction_index,
    encode_offset_index,
    encode_time_index,
    encode_transaction_index,
    index_entries,
)
from duralog.format.record import Record
from tests.support.places import GOLDEN

T0 = 1_700_000_000_000


def verify(*arguments: object, code: int) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["dump", "--verify", "--json", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def errors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "error" in row]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    return [row["note"] for row in rows if "note" in row and not row.get("skipped")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A segment with base offset 1000 and the indexes that its rule gives."""
    path = tmp_path / "orders-0" / "00000000000000001000.log"
    path.parent.mkdir()
    # Timestamps do not only rise: the time index must take the first batch that reaches each maximum.
    data = b"".join(
        record_batch.encode(
            [Record(value=b"x" * 900, timestamp_ms=T0 + (first * 7) % 5000 + i) for i in range(3)], base_offset=first
        )
        for first in range(1000, 1300, 3)
    )
    path.write_bytes(data)
    write_indexes(path)
    return path


def write_indexes(log: Path, interval_bytes: int = 4096) -> None:
    entries = list(index_entries(batches.scan(log.read_bytes()), interval_bytes=interval_bytes))
    write_offsets(log, [entry for entry in entries if isinstance(entry, OffsetIndexEntry)])
    write_times(log, [entry for entry in entries if isinstance(entry, TimeIndexEntry)])


def write_offsets(log: Path, entries: list[OffsetIndexEntry]) -> None:
    log.with_suffix(".index").write_bytes(encode_offset_index(entries, 1000))


def write_times(log: Path, entries: list[TimeIndexEntry]) -> None:
    log.with_suffix(".timeindex").write_bytes(encode_time_index(entries, 1000))


def rebuilt(log: Path) -> tuple[list[OffsetIndexEntry], list[TimeIndexEntry]]:
    entries = list(index_entries(batches.scan(log.read_bytes())))
    offsets = [entry for entry in entries if isinstance(entry, OffsetIndexEntry)]
    times = [entry for entry in entries if isinstance(entry, TimeIndexEntry)]
    assert len(offsets) > 5
    assert len(times) > 5
    return offsets, times


@pytest.mark.parametrize("folder", ["store", "compaction/before", "compaction/after"])
def test_what_kafka_wrote_passes(folder: str) -> None:
    assert errors(verify(GOLDEN / folder, code=0)) == []


@pytest.mark.parametrize("given", [".log", ".index", ".timeindex"])
def test_a_sound_segment(log: Path, given: str) -> None:
    rows = verify("--index-interval", "4096", log.with_suffix(given), code=0)
    assert [row["kind"] for row in rows] == ["file_summary", "summary"]
    assert rows[0]["records"] == 300


def test_an_index_with_another_interval_is_a_note_or_a_finding(log: Path) -> None:
    write_indexes(log, interval_bytes=20_000)
    rows = verify(log, code=0)
    assert len(notes(rows)) == 2
    assert all("index.interval.bytes=4096" in note for note in notes(rows))
    assert verify("--index-interval", 20_000, log, code=0)
    assert len(errors(verify("--index-interval", 4096, log, code=1))) == 2


def test_an_index_of_a_segment_that_is_written_to(log: Path) -> None:
    """It is not trimmed, and the time index lacks its last entry."""
    _, times = rebuilt(log)
    write_times(log, times[:-1])
    for suffix, room in ((".index", 8 * 1000), (".timeindex", 12 * 1000)):
        path = log.with_suffix(suffix)
        path.write_bytes(path.read_bytes() + bytes(room))
    assert notes(verify("--index-interval", 4096, log, code=0)) == []


def test_missing_indexes_are_reported(log: Path) -> None:
    log.with_suffix(".index").unlink()
    assert any("missing" in note for note in notes(verify(log, code=0)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda entry: replace(entry, position=entry.position + 1), "no batch starts"),
        (lambda entry: replace(entry, offset=entry.offset - 1), "has another offset"),
    ],
)
def test_a_wrong_offset_entry(log: Path, change: Any, told: str) -> None:
    entries, _ = rebuilt(log)
    entries[3] = change(entries[3])
    write_offsets(log, entries)
    (error,) = errors(verify(log, code=1))
    assert told in error["error"]
    assert error["file"] == str(log.with_suffix(".index"))
    assert error["position"] == 3 * 8


def test_offset_entries_behind_the_log(log: Path) -> None:
    entries, _ = rebuilt(log)
    write_offsets(log, [*entries, OffsetIndexEntry(2000, 10**6), OffsetIndexEntry(2001, 10**6 + 1)])
    (error,) = errors(verify(log, code=1))
    assert "after the last batch of the log, 2 times" in error["error"]
    assert error["position"] == len(entries) * 8


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda entry: replace(entry, offset=entry.offset - 1), "not the last of a batch"),
        (lambda entry: replace(entry, timestamp_ms=entry.timestamp_ms + 1), "another timestamp"),
    ],
)
def test_a_wrong_time_entry(log: Path, change: Any, told: str) -> None:
    _, entries = rebuilt(log)
    entries[2] = change(entries[2])
    write_times(log, entries)
    (error,) = errors(verify(log, code=1))
    assert told in error["error"]
    assert (error["file"], error["position"]) == (str(log.with_suffix(".timeindex")), 2 * 12)


def test_a_time_entry_that_is_not_the_first_to_reach_its_time(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.log"
    path.write_bytes(
        b"".join(record_batch.encode([Record(timestamp_ms=T0)], base_offset=offset) for offset in range(1000, 1003))
    )
    write_times(path, [TimeIndexEntry(T0, 1000)])
    assert errors(verify(path, code=0)) == []
    write_times(path, [TimeIndexEntry(T0, 1001)])
    (error,) = errors(verify(path, code=1))
    assert "not above all before" in error["error"]


def test_a_time_entry_behind_the_log(log: Path) -> None:
    _, entries = rebuilt(log)
    write_times(log, [*entries, TimeIndexEntry(T0 + 10**6, 5000)])
    (error,) = errors(verify(log, code=1))
    assert "after the last batch" in error["error"]


def test_entries_that_do_not_rise(log: Path) -> None:
    entries, _ = rebuilt(log)
    entries[4], entries[5] = entries[5], entries[4]
    write_offsets(log, entries)
    (error,) = errors(verify(log, code=1))
    assert error["position"] == 5 * 8


def test_garbage_is_not_listed_without_end(log: Path) -> None:
    log.with_suffix(".index").write_bytes(b"\xff" * 8000)
    rows = verify(log, code=1)
    assert len(errors(rows)) == 20
    assert any("980 more findings" in note for note in notes(rows))


def test_wrong_checksums_are_found(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    (error,) = errors(verify(log, code=1))
    assert (error["fault"], error["position"]) == ("CRC_MISMATCH", 0)


def test_the_log_of_an_index_is_missing(log: Path) -> None:
    log.unlink()
    result = CliRunner().invoke(app, ["dump", "--verify", str(log.with_suffix(".index"))])
    assert result.exit_code == 1
    assert ".log: No such file" in result.stderr


TXN = "00000000000000000080"


@pytest.fixture
def txn(tmp_path: Path) -> Path:
    """Two interleaved transactional producers, commits and aborts, as Kafka wrote them."""
    shutil.copytree(GOLDEN / "store" / "txn-0", tmp_path / "txn-0")
    return tmp_path / "txn-0"


def rewrite(folder: Path, entries: list[AbortedTransaction]) -> None:
    (folder / f"{TXN}.txnindex").write_bytes(encode_transaction_index(entries))


def aborted(folder: Path) -> list[AbortedTransaction]:
    return list(decode_transaction_index((folder / f"{TXN}.txnindex").read_bytes(), 80))


def test_a_missing_transaction(txn: Path) -> None:
    entries = aborted(txn)
    rewrite(txn, entries[:4] + entries[5:])
    (error,) = errors(verify(txn, code=1))
    gone = entries[4]
    assert error["expected"] == f"producer {gone.producer_id}, offsets {gone.first_offset} to {gone.last_offset}"


def test_a_missing_transaction_index(txn: Path) -> None:
    count = len(aborted(txn))
    (txn / f"{TXN}.txnindex").unlink()
    rows = verify(txn, code=1)
    assert count > 20
    assert len(errors(rows)) == 20
    assert any(f"{count - 20} more findings" in note for note in notes(rows))
    assert {error["found"] for error in errors(rows)} == {"no transaction index"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda entry: replace(entry, producer_id=99), "another producer"),
        (lambda entry: replace(entry, first_offset=entry.first_offset + 1), "does not cover"),
        (lambda entry: replace(entry, last_stable_offset=entry.last_offset + 2), "are inconsistent"),
    ],
)
def test_a_wrong_transaction(txn: Path, change: Any, told: str) -> None:
    entries = aborted(txn)
    entries[6] = change(entries[6])
    rewrite(txn, entries)
    (error,) = errors(verify(txn, code=1))
    assert told in error["error"]
    assert (error["file"], error["position"]) == (str(txn / f"{TXN}.txnindex"), 6 * 34)


def test_a_transaction_that_was_not_aborted(txn: Path) -> None:
    entries = aborted(txn)
    committed = replace(entries[-1], first_offset=2470, last_offset=2479, last_stable_offset=2480)
    rewrite(txn, [*entries, committed])
    (error,) = errors(verify(txn, code=1))
    assert "no abort marker" in error["error"]


def test_an_entry_may_reach_back_further_than_the_data(txn: Path) -> None:
    """Compaction removes aborted data, but the entry stays as it was."""
    entries = aborted(txn)
    entries[6] = replace(entries[6], first_offset=entries[6].first_offset - 5)
    rewrite(txn, entries)
    assert errors(verify(txn, code=0)) == []


def test_compressed_batches_need_no_decompression(log: Path) -> None:
    packed = bytearray(
        record_batch.encode([Record(value=b"x" * 100, timestamp_ms=T0)], base_offset=1000, codec=Codec.GZIP)
    )
    log.write_bytes(packed)
    write_indexes(log)
    verify(log, code=0)
