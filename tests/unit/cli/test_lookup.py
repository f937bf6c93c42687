"""`duralog lookup`: the record that a read would find, and the way to it."""

from __future__ import annotations

import random
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duralog.format import batches
from duralog.storage.store import Store
from tests.support import commands
from tests.support.places import GOLDEN

STORE = GOLDEN / "store"
PLAIN = STORE / "plain-0"
ENTRY = struct.Struct(">ii")


lookup = partial(commands.run, "lookup")


objects = partial(commands.objects, "lookup")


def by_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.parametrize("offset", [0, 1, 3228, 3229, 3500, 5999, 6000])
def test_by_offset(offset: int) -> None:
    rows = objects(PLAIN, "--offset", offset)
    (record,) = by_kind(rows, "record")
    assert (record["topic"], record["partition"], record["offset"]) == ("plain", 0, offset)
    (segment,) = by_kind(rows, "segment")
    assert segment["base_offset"] == max(base for base in (0, 3229, 6000) if base <= offset)
    batch = by_kind(rows, "batch")[-1]
    assert batch["base_offset"] <= offset <= batch["last_offset"]
    (entry,) = by_kind(rows, "index_entry")
    assert entry["offset"] <= max(offset, segment["base_offset"])
    assert entry["position"] == by_kind(rows, "batch")[0]["position"]


def test_the_search_is_a_binary_one() -> None:
    rows = objects(PLAIN, "--offset", 3500)
    probes = by_kind(rows, "probe")
    assert len(probes) == 7
    assert len({probe["entry"] for probe in probes}) == 7


def test_by_time_agrees_with_the_store() -> None:
    """Timestamps of the log do not only rise."""
    log = Store(str(STORE), read_only=True).partition("plain", 0)
    times = random.Random(5).sample([record.timestamp_ms for record in log.read(0)], 12)
    for time in [times[0] - 10**9, *times]:
        expected = log.offset_for_timestamp(time)
        assert expected is not None
        (record,) = by_kind(objects(PLAIN, "--time", time), "record")
        assert (record["offset"], record["timestamp"]) == (expected.offset, expected.timestamp_ms)


def test_by_time_shows_both_indexes() -> None:
    rows = objects(PLAIN, "--time", "2023-11-14T22:13:44Z")
    assert [row["index"] for row in by_kind(rows, "index_entry")] == ["time", "offset"]
    (record,) = by_kind(rows, "record")
    assert record["offset"] == 3429


def test_by_key_finds_the_newest(tmp_path: Path) -> None:
    log = Store(str(STORE), read_only=True).partition("txn", 0)
    newest = {record.key: record.offset for record in log.read(0)}
    key, offset = next((key, offset) for key, offset in newest.items() if key is not None)
    rows = objects(STORE / "txn-0", "--key", f"0x{key.hex()}")
    (record,) = by_kind(rows, "record")
    assert record["offset"] == offset
    batch = by_kind(rows, "batch")[-1]
    assert batch["base_offset"] <= offset <= batch["last_offset"]


def test_nothing_found() -> None:
    assert by_kind(objects(PLAIN, "--key", "no such key", code=1), "nothing")
    assert by_kind(objects(PLAIN, "--time", "2100-01-01", code=1), "nothing")
    assert "offsets are 0 to 6000" in lookup(PLAIN, "--offset", 6001, code=1).stderr
    assert "offsets are 3456 to 4999" in lookup(STORE, "-t", "trimmed", "--offset", 3455, code=1).stderr
    assert "it is empty" in lookup(STORE / "__consumer_offsets-1", "--offset", 0, code=1).stderr


def test_an_offset_that_compaction_removed(tmp_path: Path) -> None:
    folder = GOLDEN / "compaction" / "after"
    log = Store(str(folder), read_only=True).partition("c-none", 0)
    there = [record.offset for record in log.read(log.start_offset)]
    gone = next(offset for offset in range(there[0], there[-1]) if offset not in set(there))
    rows = objects(folder / "c-none-0", "--offset", gone)
    (record,) = by_kind([row for row in rows if "kind" in row], "record")
    assert record["offset"] == min(offset for offset in there if offset > gone)
    assert any(f"offset {gone} has no record any more" in row.get("note", "") for row in rows)


def test_a_control_record() -> None:
    log = Store(str(STORE), read_only=True).partition("txn", 0)
    data = {record.offset for record in log.read(0)}
    marker = next(offset for offset in range(log.end_offset) if offset not in data)
    assert "control record" in lookup(STORE / "txn-0", "--offset", marker).stdout


def test_old_formats_without_indexes() -> None:
    (record,) = by_kind(objects(GOLDEN / "legacy", "-t", "v1-gzip", "--offset", 1010), "record")
    assert record["offset"] == 1010


def test_a_missing_index_costs_nothing_but_time(tmp_path: Path) -> None:
    shutil.copytree(PLAIN, tmp_path / "plain-0")
    for index in (tmp_path / "plain-0").glob("*index"):
        index.unlink()
    before = sorted(path.name for path in (tmp_path / "plain-0").iterdir())
    (record,) = by_kind(objects(tmp_path / "plain-0", "--offset", 3500), "record")
    assert record["offset"] == 3500
    assert sorted(path.name for path in (tmp_path / "plain-0").iterdir()) == before


def damaged(tmp_path: Path) -> tuple[Path, int]:
    """A copy of the partition whose second segment has a batch of no possible length, and where that is."""
    folder = tmp_path / "plain-0"
    shutil.copytree(PLAIN, folder)
    log = folder / "00000000000000003229.log"
    data = bytearray(log.read_bytes())
    position = [batch.position for batch in batches.scan(bytes(data))][50]
    data[position + 8 : position + 12] = bytes(4)
    log.write_bytes(data)
    (folder / "00000000000000003229.index").unlink()
    return folder, position


def test_damage_on_the_way_is_reported_and_not_skipped(tmp_path: Path) -> None:
    folder, position = damaged(tmp_path)
    result = lookup(folder, "--offset", 5900, code=1)
    assert f"00000000000000003229.log: position {position}: " in result.stderr
    assert "the record" not in result.stdout


def test_a_key_found_next_to_damage_may_not_be_the_newest(tmp_path: Path) -> None:
    folder, position = damaged(tmp_path)
    newest = {record.key: record.offset for record in Store(str(STORE), read_only=True).partition("plain", 0).read(0)}
    key = next(key for key, offset in newest.items() if key is not None and offset < 3229)
    rows = objects(folder, "--key", f"0x{key.hex()}", code=1)
    assert [row["position"] for row in rows if "error" in row] == [position]
    assert [row["offset"] for row in rows if row.get("kind") == "record"] == [newest[key]]


@pytest.mark.parametrize("shift", [1, None], ids=["no batch", "another batch"])
def test_a_wrong_index_does_not_mislead_readers(tmp_path: Path, shift: int | None) -> None:
    folder = tmp_path / "plain-0"
    shutil.copytree(PLAIN, folder)
    index = folder / "00000000000000003229.index"
    entries = [list(ENTRY.unpack_from(index.read_bytes(), at)) for at in range(0, index.stat().st_size, ENTRY.size)]
    if shift is None:
        entries = [[offset, later] for (offset, _), (_, later) in zip(entries, entries[30:], strict=False)]
    else:
        entries[10][1] += shift
    index.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
    offset = 3229 + entries[10][0] + 1
    rows = objects(folder, "--offset", offset)
    assert [row["offset"] for row in rows if row.get("kind") == "record"] == [offset]
    assert any("the entry is wrong" in row.get("note", "") for row in rows)


def test_lines() -> None:
    lines = lookup(STORE, "--topic", "plain", "--partition", 0, "--offset", 3500).stdout.splitlines()
    assert [line[:2] for line in lines if line[:1].isdigit()] == ["1.", "2.", "3.", "4."]
    assert "   > 00000000000000003229.log" in "\n".join(lines)
    assert "   > entry 10: offset 3491, position 79237" in lines
    assert lines[-1].startswith("   > offset 3500  2023-11-14T22:13:44.500Z  key")
    (quiet,) = lookup("--quiet", PLAIN, "--offset", 3500).stdout.splitlines()
    assert quiet == lines[-1]


def test_wrong_usage(tmp_path: Path) -> None:
    for arguments in ([], ["--offset", 1, "--key", "x"], ["--time", "soon"], ["--offset", -1]):
        lookup(PLAIN, *arguments, code=2)
    assert "choose a topic (__consumer_offsets, " in lookup(STORE, "--offset", 1, code=1).stderr
    assert "codecs has 5 partitions: choose a partition" in lookup(STORE, "-t", "codecs", "--offset", 1, code=1).stderr
    assert "no topic orders" in lookup(STORE, "-t", "orders", "--offset", 1, code=1).stderr
    lookup(tmp_path / "missing", "--offset", 1, code=1)
