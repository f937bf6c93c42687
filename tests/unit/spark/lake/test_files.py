"""What tables are made of: targets, files by day, states; and the sizes of batches without compression."""

from __future__ import annotations

import datetime
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from duralog.columnar.measured_records import decode_measured
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.columnar.schema import RECORD_SCHEMA, TIMESTAMP
from duralog.errors import InvalidConfig, StorageError
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record
from duralog.spark.lake import targets
from duralog.spark.lake.columns import by_day, table_schema, to_table_columns
from duralog.spark.lake.parquet_files import ParquetFiles
from duralog.spark.lake.targets import LakeTarget

DAY_MS = 86_400_000


def records(*times_ms: int | None) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {"topic": "t", "partition": 0, "offset": place, "timestamp_type": 0, "key": None, "value": b"v", "headers": []}
        for place, _ in enumerate(times_ms)
    ]
    batch = pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)
    times = pa.array(times_ms, pa.int64()).cast(RECORD_SCHEMA.field(TIMESTAMP).type)
    return batch.set_column(RECORD_SCHEMA.names.index(TIMESTAMP), RECORD_SCHEMA.field(TIMESTAMP), times)


# Targets


def test_a_local_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = LakeTarget.of("lake").child("t")
    assert target.location == target.uri == str(tmp_path / "lake" / "t")
    assert LakeTarget.of(f"file://{tmp_path}/lake").location == str(tmp_path / "lake")
    assert (target.files(), target.read("state", most_bytes=9), target.exists("state")) == ([], None, False)
    target.replace("state", b"1")
    target.replace("state", b"22")
    assert target.read("state", most_bytes=9) == b"22"
    with target.create("a/b/file") as file:
        file.write(b"data")
        assert not (tmp_path / "lake/t/a/b/file").exists()
        (part,) = (tmp_path / "lake/t/a/b").iterdir()
        assert part.name.startswith(".file.")
        assert part.name.endswith(".part")
    target.copy("a/b/file", "c/copy")
    travelled: LakeTarget = pickle.loads(pickle.dumps(target))
    assert sorted(travelled.files()) == [("a/b/file", 4), ("c/copy", 4), ("state", 2)]
    assert travelled.delete(["a/b/file", "a/b/file", "nothing"]) == 1
    target.delete_folder("c")
    target.delete_folder("c")
    assert [found.path for found in target.files()] == ["state"]


def test_a_file_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    target = LakeTarget.of(str(tmp_path))
    target.replace("old", b"old")

    def fail() -> None:
        with target.create("old") as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert target.files() == [("old", 3)]
    assert target.read("old", most_bytes=3) == b"old"


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"), LakeTarget.of(str(tmp_path / "file")).create("x"):
        pass


class BrokenAnswers:
    """A local file system that answers as pyarrow does when connections end inside the headers of an answer."""

    def __init__(self) -> None:
        self._below = pafs.LocalFileSystem()
        self.empty_listings = 0
        self.empty_files = 0

    def get_file_info(self, wanted: Any) -> Any:
        if isinstance(wanted, pafs.FileSelector) and self.empty_listings:
            self.empty_listings -= 1
            return []
        return self._below.get_file_info(wanted)

    def open_input_file(self, path: str) -> Any:
        if self.empty_files:
            self.empty_files -= 1
            return pa.BufferReader(b"")
        return self._below.open_input_file(path)


def test_a_remote_target_behind_a_broken_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table must not be taken for empty, nor one with a state for one without."""
    (tmp_path / "state.json").write_bytes(b"{}")
    files = BrokenAnswers()
    monkeypatch.setattr(targets, "_open", lambda *_: (files, str(tmp_path)))
    target = LakeTarget(f"s3://lake{tmp_path}")
    files.empty_listings, files.empty_files = 1, 2
    assert [file.path for file in target.files()] == ["state.json"]
    assert target.read("state.json", most_bytes=100) == b"{}"
    assert target.read("other.json", most_bytes=100) is None
    files.empty_files = 5
    with pytest.raises(StorageError, match=r"s3://lake.*/state\.json: cannot open: the object store .* 0 bytes"):
        target.read("state.json", most_bytes=100)


def test_options_are_checked_and_not_shown() -> None:
    with pytest.raises(InvalidConfig, match=r"fs\.region: no such storage option for file"):
        LakeTarget.of("/tmp/x", {"region": "x"})
    assert "hidden" not in repr(LakeTarget.of("s3://bucket/x", {"secret_key": "hidden"}))


# Days


def test_one_day_is_not_copied() -> None:
    batch = records(0, DAY_MS - 1)
    ((day, found),) = by_day(batch)
    assert day == datetime.date(1970, 1, 1)
    assert found is batch


def test_days_in_any_order() -> None:
    batch = records(DAY_MS, -1, 5 * DAY_MS, DAY_MS + 1, None, 2**62, -(2**62), 0).slice(1)
    found = {day: part.column("offset").to_pylist() for day, part in by_day(batch)}
    first = datetime.date(1970, 1, 1)
    assert found == {
        None: [4, 5, 6],
        first - datetime.timedelta(1): [1],
        first: [7],
        first + datetime.timedelta(1): [3],
        first + datetime.timedelta(5): [2],
    }
    assert list(by_day(batch.slice(0, 0))) == []


def test_times_in_a_table() -> None:
    schema = table_schema(headers=True, date=True)
    rows = to_table_columns(records(5, None, 2**62, 2**63 // 1000), schema, datetime.date(2020, 1, 1))
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [5000, None, None, 2**63 // 1000 * 1000]
    assert set(rows.column("date").to_pylist()) == {datetime.date(2020, 1, 1)}
    assert schema.names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
        "date",
    ]


# Files


def test_files_show_their_contents(tmp_path: Path) -> None:
    schema = table_schema(headers=False)
    with ParquetFiles(LakeTarget.of(str(tmp_path)), schema, column="date", stem="part-x", folder="data/") as files:
        files.write("2020-01-01", to_table_columns(records(7, None), schema))
        files.write(None, to_table_columns(records(None), schema))
        files.write("2020-01-01", to_table_columns(records(3), schema))
        undated, dated = sorted(files.finish(), key=lambda file: file.records)
    assert (dated.path, dated.value) == ("data/date=2020-01-01/part-x.parquet", "2020-01-01")
    assert (dated.records, dated.first_offset, dated.last_offset) == (3, 0, 1)
    assert (dated.first_time_us, dated.last_time_us) == (3000, 7000)
    assert (dated.null_counts["timestamp"], dated.null_counts["key"], dated.null_counts["value"]) == (1, 3, 0)
    assert undated.path == "data/date=__HIVE_DEFAULT_PARTITION__/part-x.parquet"
    assert (undated.first_time_us, undated.last_time_us) == (None, None)
    for file in (dated, undated):
        assert (tmp_path / file.path).stat().st_size == file.size_bytes
        assert pq.read_metadata(tmp_path / file.path).num_rows == file.records


def test_files_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three days at most two wait; the one that comes again has two files."""
    monkeypatch.setattr("duralog.spark.lake.parquet_files._MOST_WAITING_FILES", 2)
    schema = table_schema(headers=False)
    with ParquetFiles(LakeTarget.of(str(tmp_path)), schema, column="date", stem="x") as files:
        for value, times in (("a", (1, 2)), ("b", (3,)), ("c", (4,)), ("a", (5,))):
            files.write(value, to_table_columns(records(*times), schema))
        found = {file.path: file.records for file in files.finish()}
    assert found == {
        "date=a/x.parquet": 2,
        "date=a/x-1.parquet": 1,
        "date=b/x.parquet": 1,
        "date=c/x.parquet": 1,
    }


def test_an_error_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.spark.lake.parquet_files._ROW_GROUP_BYTES", 1)
    schema = table_schema(headers=False)

    def fail() -> None:
        with ParquetFiles(LakeTarget.of(str(tmp_path)), schema, column="date", stem="x") as files:
            files.write("a", to_table_columns(records(1), schema))
            files.write("b", to_table_columns(records(1), schema))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert LakeTarget.of(str(tmp_path)).files() == []


# Sizes


def piece_of(*batches: bytes) -> Piece:
    (piece,) = read_pieces(MemorySource(b"".join(batches)), piece_bytes=1 << 30)
    return piece


@pytest.mark.parametrize(("magic", "codec"), [(2, Codec.ZSTD), *product([0, 1, 2], list(Codec)[: Codec.ZSTD])])
def test_the_size_without_compression(magic: int, codec: Codec) -> None:
    def encoded(with_codec: Codec, first: int) -> bytes:
        rows = [Record(key=b"k", value=b"v" * 100, timestamp_ms=1000) for _ in range(20)]
        if magic == 2:
            return record_batch.encode(rows, base_offset=first, last_offset=first + 19, codec=with_codec)
        return message_set.encode(rows, magic=magic, base_offset=first, codec=with_codec)

    piece = piece_of(encoded(codec, 0), encoded(codec, 20))
    sizes, chunks = decode_measured(piece)
    assert sum(len(chunk) for chunk in chunks) == 40
    assert sizes.sum() == 2 * len(encoded(Codec.NONE, 0))
    if codec is not Codec.NONE:
        assert (piece.batches["size"] < sizes).all()
        sizes, chunks = decode_measured(piece, np.array([1]))
        assert sum(len(chunk) for chunk in chunks) == 20
        assert sizes[0] == piece.batches["size"][0] < sizes[1]
