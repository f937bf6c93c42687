"""`duralog dump` on damaged files: the good part is shown, the damage is named, the exit code is 1, nothing crashes."""

from __future__ import annotations

import errno
import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from duralog.command_line import app
from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from tests.support.places import GOLDEN

T0 = 1_700_000_000_000
MUTATIONS = 10
"""Of each partition, each dumped in every mode. `tests/properties` mutates the formats themselves far more often."""


def batch(first: int, *, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(key=b"k%02d" % i, value=b"v" * 20, timestamp_ms=T0 + i) for i in range(first, first + 10)]
    return record_batch.encode(records, base_offset=first, codec=codec)


BATCHES = [batch(first) for first in range(0, 50, 10)]
SIZE = len(BATCHES[0])


def with_crc(data: bytearray) -> bytes:
    """The batch with its checksum made right again."""
    crc = crc32c(memoryview(data)[BATCH_V2.at.attributes :])
    data[BATCH_V2.at.crc : BATCH_V2.at.crc + 4] = crc.to_bytes(4, "big")
    return bytes(data)


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["dump", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def objects(*arguments: object, code: int) -> list[dict[str, Any]]:
    result = run("--json", *arguments)
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def errors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "error" in row]


def test_a_wrong_checksum_is_flagged_and_its_records_are_skipped(path: Path) -> None:
    damaged = bytearray(b"".join(BATCHES))
    damaged[2 * SIZE + 80] ^= 0x40
    path.write_bytes(damaged)
    rows = objects(path, code=1)
    assert [row["crc_ok"] for row in rows if row.get("kind") == "batch"] == [True, True, False, True, True]
    (error,) = errors(rows)
    assert rows.index(error) == 3
    assert (error["fault"], error["file"], error["position"]) == ("CRC_MISMATCH", str(path), 2 * SIZE)
    stored = int.from_bytes(damaged[2 * SIZE + BATCH_V2.at.crc :][:4], "big")
    computed = crc32c(bytes(damaged[2 * SIZE + BATCH_V2.at.attributes : 3 * SIZE]))
    assert {int(error["expected"], 16), int(error["found"], 16)} == {stored, computed}
    rows = objects("--records", path, code=1)
    assert [row["offset"] for row in rows if "offset" in row] == [*range(20), *range(30, 50)]
    assert [error["position"] for error in errors(rows)] == [2 * SIZE]
    text = run(path).stdout
    assert "  BAD" in text
    assert f"! {path}: position {2 * SIZE}: " in text
    assert "1 finding (batches with a wrong checksum: 1)" in text
    (summary, _) = [row for row in objects("--summary", path, code=1) if "kind" in row]
    assert (summary["bad_batches"], summary["records"]) == (1, 40)


@pytest.mark.parametrize(
    ("length", "fault"),
    [(13, "BATCH_LENGTH"), (-5, "BATCH_LENGTH"), (2**31 - 1, "PARTIAL_BATCH"), (48, "BATCH_LENGTH")],
)
def test_an_impossible_length(path: Path, length: int, fault: str) -> None:
    damaged = bytearray(b"".join(BATCHES))
    damaged[SIZE + 8 : SIZE + 12] = length.to_bytes(4, "big", signed=True)
    path.write_bytes(damaged)
    rows = objects("--records", path, code=1)
    assert [row["offset"] for row in rows if "offset" in row] == list(range(10))
    (error,) = errors(rows)
    assert (error["fault"], error["position"]) == (fault, SIZE)


def test_an_unknown_format_version(path: Path) -> None:
    damaged = bytearray(b"".join(BATCHES))
    damaged[3 * SIZE + 16] = 3
    path.write_bytes(damaged)
    rows = objects(path, code=1)
    assert len([row for row in rows if row.get("kind") == "batch"]) == 3
    (error,) = errors(rows)
    assert (error["fault"], error["position"], error["found"]) == ("UNKNOWN_MAGIC", 3 * SIZE, "3")
    assert rows[-1]["unread_bytes"] == 2 * SIZE


@pytest.mark.parametrize("kept", [8, 11, 12, 16, 17, 60, SIZE - 1])
def test_half_a_batch_at_the_end(path: Path, kept: int) -> None:
    path.write_bytes(b"".join(BATCHES[:2]) + BATCHES[2][:kept])
    rows = objects(path, code=1)
    (error,) = errors(rows)
    assert (error["fault"], error["position"], error["found"]) == ("PARTIAL_BATCH", 2 * SIZE, f"{kept} bytes")
    if kept >= 12:
        assert error["expected"] == f"{SIZE} bytes"


@pytest.mark.parametrize("zeros", [1, 16, 17, 100_000])
def test_preallocated_space_is_not_corrupt(path: Path, zeros: int) -> None:
    path.write_bytes(b"".join(BATCHES) + bytes(zeros))
    rows = objects(path, code=0)
    assert rows[-1]["zero_bytes"] == zeros
    assert rows[-1]["position"] == 5 * SIZE
    told = "1 zero byte" if zeros == 1 else f"{zeros:,} zero bytes"
    assert f"{told} at the end, preallocated" in run(path).stdout
    path.write_bytes(b"".join(BATCHES) + bytes(zeros) + b"\x01")
    assert errors(objects(path, code=1))


def test_an_unknown_codec(path: Path) -> None:
    damaged = bytearray(BATCHES[1])
    damaged[BATCH_V2.at.attributes + 1] |= 5
    path.write_bytes(BATCHES[0] + with_crc(damaged) + BATCHES[2])
    rows = objects("--records", path, code=1)
    assert [row["offset"] for row in rows if "offset" in row] == [*range(10), *range(20, 30)]
    (error,) = errors(rows)
    assert (error["fault"], error["position"]) == ("UNKNOWN_CODEC", SIZE)
    assert [row.get("codec") for row in objects(path, code=0)] == ["none", "unknown-5", "none"]


def test_a_negative_record_count(path: Path) -> None:
    damaged = bytearray(BATCHES[1])
    damaged[BATCH_V2.at.record_count : BATCH_V2.at.record_count + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(BATCHES[0] + with_crc(damaged))
    (error,) = errors(objects("--records", path, code=1))
    assert (error["fault"], error["position"], error["found"]) == ("RECORD_COUNT", SIZE, "-1")
    objects("--summary", path, code=0)


def test_a_decompression_bomb(path: Path) -> None:
    bomb = record_batch.encode([Record(value=bytes(5 << 20), timestamp_ms=T0)], codec=Codec.GZIP)
    assert len(bomb) < 10_000
    path.write_bytes(bomb + batch(1))
    rows = objects("--records", "--max-decompressed-bytes", "1m", path, code=1)
    assert [row["offset"] for row in rows if "offset" in row] == list(range(1, 11))
    (error,) = errors(rows)
    assert (error["fault"], error["position"]) == ("TOO_LARGE", 0)
    assert len(objects("--records", path, code=0)) == 11


def test_offsets_that_go_back(path: Path) -> None:
    damaged = bytearray(b"".join(BATCHES))
    damaged[4 * SIZE : 4 * SIZE + 8] = (3).to_bytes(8, "big")
    path.write_bytes(damaged)
    (error,) = errors(objects(path, code=1))
    assert (error["position"], error["expected"], error["found"]) == (4 * SIZE, "an offset over 39", "3")


def test_garbage_in_an_internal_topic(tmp_path: Path) -> None:
    path = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(
        record_batch.encode(
            [
                Record(key=b"\x00\x01\x00\xffgarbage", value=b"?", timestamp_ms=T0),
                Record(key=None, value=b"", timestamp_ms=T0),
            ]
        )
    )
    rows = objects("--records", path, code=1)
    assert len(errors(rows)) == 2
    assert all(error["position"] == 0 and error["file"] == str(path) for error in errors(rows))
    assert [row["offset"] for row in rows if "offset" in row] == [0, 1]
    assert rows[1]["key_hex"] == "000100ff67617262616765"
    assert len(objects("--records", "--raw", path, code=0)) == 2


def test_an_infinite_number_is_still_json(tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    path.parent.mkdir()
    # A client quota of infinity: frame version 1, type 14, version 0, no entity, key "k", value, not removed, no tags.
    infinity = b"\x7f\xf0" + bytes(6)
    path.write_bytes(
        record_batch.encode([Record(value=b"\x01\x0e\x00\x01\x02k" + infinity + b"\x00\x00", timestamp_ms=T0)])
    )
    (row,) = objects("--records", path, code=0)
    assert row["type"] == "CLIENT_QUOTA_RECORD"
    assert row["value"]["value"] == "inf"


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000000.snapshot",
        "recovery-point-offset-checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
        "00000000000000000000-0000000001.checkpoint",
        "00000000000000000000.log.swap",
    ],
)
def test_garbage_under_every_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(random.Random(name).randbytes(1001))
    rows = objects(path, code=1)
    assert errors(rows)
    assert all(error["file"] == str(path) for error in errors(rows))


def test_one_bad_file_does_not_end_the_others(tmp_path: Path, path: Path) -> None:
    path.write_bytes(BATCHES[0])
    bad = tmp_path / "leader-epoch-checkpoint"
    bad.write_text("nonsense")
    result = run("--json", bad, tmp_path / "missing.log", path)
    assert result.exit_code == 1
    assert "missing.log" in result.stderr
    assert "No such file" in result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row.get("kind") for row in rows] == [None, "batch"]


def test_a_file_that_may_not_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(BATCHES[0])

    def refuse(name: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    with monkeypatch.context() as patch:
        patch.setattr("duralog.storage.disk.file_system.os.open", refuse)
        result = run(path)
    assert result.exit_code == 1
    assert f"{path}: Permission denied (run it as the user who owns the files" in result.stderr


def test_a_folder_that_may_not_be_read_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("orders-0", "orders-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(BATCHES[0])
    scan = os.scandir

    def refuse(folder: str) -> object:
        if folder.endswith("orders-0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return scan(folder)

    monkeypatch.setattr("duralog.storage.disk.found_files.os.scandir", refuse)
    result = run("--json", tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path / 'orders-0'}: Permission denied (run it as" in result.stderr
    assert [json.loads(line)["file"] for line in result.stdout.splitlines()] == [
        str(tmp_path / "orders-1" / "00000000000000000000.log")
    ]
    only_the_other = run("--json", tmp_path, "--partition", "1")
    assert (only_the_other.exit_code, only_the_other.stderr) == (0, "")
    only_that_one = run("--json", tmp_path, "--partition", "0")
    assert only_that_one.exit_code == 1
    assert only_that_one.stderr.count("\n") == 1


def test_an_address_of_a_broker(tmp_path: Path) -> None:
    result = run("localhost:9092")
    assert result.exit_code == 2
    assert "duralog consume localhost:9092" in " ".join(result.stderr.replace("│", "").split())
    (tmp_path / "host:9092").write_bytes(b"")
    assert "not a file of a log" in run(tmp_path / "host:9092").stderr


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "give a partition folder" in result.stderr


def test_an_export_that_cannot_be_written(tmp_path: Path, path: Path) -> None:
    path.write_bytes(BATCHES[0])
    result = run("--to", tmp_path / "nowhere" / "out.csv", path)
    assert result.exit_code == 1
    assert "nowhere" in result.stderr


def test_an_export_keeps_the_good_part(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"".join(BATCHES[:2]) + b"garbage that is no batch" * 9)
    target = tmp_path / "out.csv"
    result = run("--quiet", "--to", target, path)
    assert result.exit_code == 1
    assert len(target.read_text().splitlines()) == 1 + 20


MODES = [
    [],
    ["--records"],
    ["--summary"],
    ["--verify"],
    ["--records", "--key", "k03"],
    ["--records", "--offsets", "5:"],
]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["txn-0", "codecs-3", "__consumer_offsets-0", "__cluster_metadata-0"])
def test_mutated_partitions_never_crash(tmp_path: Path, folder: str, randomised: int) -> None:
    """Flipped, cut, repeated and zeroed bytes in any file of a partition that Kafka wrote."""
    generator = random.Random(zlib.crc32(folder.encode()))
    sources = sorted(p for p in (GOLDEN / "store" / folder).iterdir() if p.suffix != ".gz" and p.stat().st_size)
    partition = tmp_path / folder
    partition.mkdir()
    for source in sources:
        (partition / source.name).write_bytes(source.read_bytes())
    for _ in range(MUTATIONS * randomised):
        source = generator.choice(sources)
        (partition / source.name).write_bytes(mutated(source.read_bytes()[: 1 << 17], generator))
        for mode in MODES:
            result = run("--json", *mode, partition)
            assert result.exit_code in (0, 1)
            for line in result.stdout.splitlines():
                assert isinstance(json.loads(line), dict)
        (partition / source.name).write_bytes(source.read_bytes())


def mutated(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(changed) or 1)
        kind = generator.randrange(5)
        if kind == 0 and changed:
            changed[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at : at + 4] = generator.randbytes(4)
        elif kind == 3:
            changed[at:at] = changed[at : at + generator.randint(1, 100)]
        else:
            changed[at : at + 20] = bytes(20)
    return bytes(changed)
