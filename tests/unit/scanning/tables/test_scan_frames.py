"""A scan in DuckDB, Polars and pandas: any number of queries, with what they need and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest

import duralog
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice
from duralog.scanning.tables import scan as scan_module
from tests.support.spark.planned_log import NOW_MS, fill, open_for_writing, record

END = 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames")
    with open_for_writing(path) as store:
        store.create_topic("orders", 2)
        for number in range(2):
            fill(store.partition("orders", number), 0, END)
    return path


def test_duckdb_asks_as_often_as_it_likes(path: Path) -> None:
    orders = duralog.scan(path, topic="orders")
    for _ in range(2):
        assert duckdb.execute('select count(*), max("offset") from orders').fetchall() == [(2 * END, END - 1)]
    connection = orders.to_duckdb("mine")
    for _ in range(2):
        assert connection.sql("select count(distinct partition) from mine").fetchall() == [(2,)]


def test_each_use_reads_what_is_there(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        fill(log, 0, 10)
        found = duralog.scan(tmp_path, topic="t")
        fill(log, 10, 20)
        assert found.to_arrow().num_rows == 10, "the first use is of the call"
        assert found.to_arrow().num_rows == found.count() == 20


def test_polars_reads_only_what_it_needs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_SLICE_BYTES", 3000)
    asked: list[list[str]] = []

    def counted(slices: Iterable[Slice], *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        asked.append(list(columns))
        return read_slices(slices, columns=columns)

    monkeypatch.setattr(scan_module, "read_slices", counted)
    frame = duralog.scan(path, topic="orders", threads=1).to_polars()
    found = frame.filter(polars.col("partition") == 1).select(polars.col("offset").max()).collect()
    assert found.item() == END - 1
    assert set(map(tuple, asked)) == {("partition", "offset")}
    asked.clear()
    assert frame.select("key").head(5).collect().height == 5
    assert len(asked) <= 3, "a limit ends the reading"
    assert frame.collect().height == 2 * END


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_limit_before_a_condition_and_after_it(path: Path, engine: polars._typing.EngineType) -> None:
    frame = duralog.scan(path, topic="orders", partition=0).to_polars().select("offset")
    is_late = polars.col("offset") >= 5
    assert frame.head(7).filter(is_late).collect(engine=engine)["offset"].to_list() == [5, 6]
    assert frame.filter(is_late).head(3).collect(engine=engine)["offset"].to_list() == [5, 6, 7]
    assert frame.slice(2, 5).filter(is_late).collect(engine=engine)["offset"].to_list() == [5, 6]


def test_pandas_and_times(path: Path) -> None:
    since = datetime.fromtimestamp((NOW_MS + 900) / 1000, UTC)
    found = duralog.scan(path, topic="orders", partition=0, since=since, until=NOW_MS + 950)
    assert list(found.to_pandas()["offset"]) == list(range(900, 950))
    assert found.count() == 50
    text = duralog.scan(path, topic="orders", partition=0, since=since.isoformat())
    assert text.count() == 100
    with pytest.raises(ValueError, match="not a time"):
        duralog.scan(path, since="yesterday")


def test_counts_come_from_headers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[object] = []

    def decode(*arguments: object, **_: object) -> Iterator[pa.RecordBatch]:
        decoded.append(arguments)
        return iter(())

    monkeypatch.setattr("duralog.scanning.counting.piece_to_arrow", decode)
    assert duralog.scan(path, topic="orders").count() == 2 * END
    assert decoded == []


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_counts_are_exact_with_transactions_and_compaction(tmp_path: Path, isolation: str) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = store.partition("t", 0)
        fill(log, 0, 200)
        log.append([record(1)] * 5, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.end_transaction(1, 0, commit=False)
        log.roll()
        store.compact("t", 0)
        log.append([record(1)])
    found = duralog.scan(tmp_path, topic="t", isolation=isolation)
    assert found.count() == found.to_arrow().num_rows


def test_conditions(path: Path) -> None:
    found = duralog.scan(path, topic="orders", columns=["offset"], where='key = "none"')
    assert found.to_arrow().num_rows == 0
    with pytest.raises(duralog.DuralogError):
        duralog.scan(path, where="key ===")


def test_columns_of_one_use(path: Path) -> None:
    found = duralog.scan(path, topic="orders")
    assert found.to_arrow_batch_reader(["value", "offset"]).schema.names == ["offset", "value"]
    assert "orders" in repr(found)
    assert "2 partitions" in found.explain()
    with pytest.raises(ValueError, match="not both"):
        duralog.scan(path, topic="orders", topics=["orders"])
