"""Records to Parquet, Arrow and CSV files, and what is left when the writing fails."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duralog.columnar.export import EXTENSIONS, Export
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.errors import DuralogError

T0 = 1_700_000_000_000


def records(offset: int, *rows: dict[str, object]) -> pa.RecordBatch:
    filled = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset + i,
            "timestamp": T0 + i,
            "timestamp_type": 0,
            "headers": [],
            **row,
        }
        for i, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(filled, schema=RECORD_SCHEMA)


FIRST = records(0, {"key": b"k", "value": b"v"}, {"key": None, "value": b"\xff\x00"})
SECOND = records(2, {"key": b"", "value": None, "headers": [{"key": "h", "value": b"x"}, {"key": "g", "value": None}]})


def write(path: Path, *batches: pa.RecordBatch) -> None:
    with Export(str(path)) as export:
        for batch in batches:
            export.write(batch)
        assert export.rows == sum(batch.num_rows for batch in batches)


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


@pytest.mark.parametrize("extension", [".parquet", ".arrow", ".feather"])
def test_tables_keep_every_byte(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"out{extension}"
    write(path, FIRST, SECOND)
    assert read(path).to_pylist() == pa.Table.from_batches([FIRST, SECOND]).to_pylist()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_no_records_make_an_empty_table(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"out{extension}"
    write(path)
    if extension == ".csv":
        assert path.read_text().splitlines() == [",".join(f'"{name}"' for name in RECORD_SCHEMA.names)]
    else:
        table = read(path)
        assert (table.num_rows, table.column_names) == (0, RECORD_SCHEMA.names)


def test_csv_cells(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    odd = records(
        3,
        {"key": b"0xab", "value": b'say "hi",\nthen go', "timestamp": None, "timestamp_type": -1},
        {"key": "é".encode(), "value": b"", "timestamp": 253_402_300_800_000},
    )
    write(path, FIRST, SECOND, odd)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["offset"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["key"] for row in rows] == ["k", "", "", "0x30786162", "é"]
    assert [row["value"] for row in rows] == ["v", "0xff00", "", 'say "hi",\nthen go', ""]
    assert [row["timestamp"] for row in rows] == [
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:20.001Z",
        "2023-11-14T22:13:20.000Z",
        "",
        "253402300800000",
    ]
    assert datetime.fromisoformat(rows[0]["timestamp"]) == datetime.fromtimestamp(T0 / 1000, UTC)
    assert [row["headers"] for row in rows] == ["[]", "[]", '[["h", "x"], ["g", null]]', "[]", "[]"]
    # Null and empty differ by their quotes, which Python's reader does not tell.
    lines = path.read_text(encoding="utf-8").splitlines()
    assert ',0,,"0xff00",' in lines[2]
    assert ',0,"",,' in lines[3]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_failure_leaves_nothing_behind(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"out{extension}"
    path.write_text("the old one")

    def write_half() -> None:
        with Export(str(path)) as export:
            export.write(FIRST)
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        write_half()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "the old one"


def test_an_unknown_kind_of_file(tmp_path: Path) -> None:
    with pytest.raises(DuralogError, match=r"must end in \.parquet"):
        Export(str(tmp_path / "out.txt"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Export(str(tmp_path / "nowhere" / "out.csv"))
