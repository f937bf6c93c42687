"""A scan in DuckDB, Polars and pandas: any number of queries, with what they need and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import duckdb
import polars
import pyarrow as pa
import pytest

import duralog
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice
from duralog.scanning.tables import scan as scan_module
from duralog.scanning.tables import scan_planning
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
    monkeypatch.setattr(scan_planning, "SLICE_BYTES", 3000)
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


_OFFSET, _PARTITION, _TOPIC = (polars.col(name) for name in ("offset", "partition", "topic"))
_TIME = polars.col("timestamp")
_LATE = datetime.fromtimestamp((NOW_MS + 890) / 1000, UTC)


@pytest.mark.parametrize(
    ("condition", "rows", "most"),
    [
        ((_OFFSET >= 100) & (_OFFSET < 110), 20, 40),
        (_OFFSET.is_between(100, 109, closed="none"), 16, 40),
        ((polars.lit(995) <= _OFFSET) & (_PARTITION == 1), 5, 20),
        ((_PARTITION.is_in([1, 7])) & (_OFFSET == 7), 1, 20),
        (_TOPIC.str.starts_with("ord") & (_OFFSET == 7), 2, 40),
        (_TOPIC != "orders", 0, 0),
        (_OFFSET > 10**9, 0, 0),
        (_OFFSET < -5, 0, 0),
        (_TIME >= _LATE, 220, 400),
        ((_TIME > _LATE) & (_TIME < _LATE) & (_PARTITION == 0), 0, 200),
        ((_OFFSET < 3) | (_PARTITION == 1), END + 3, 2 * END),
        (_OFFSET % 500 == 7, 4, 2 * END),
        (~(_OFFSET > 10), 22, 2 * END),
        (_OFFSET > 10.5, 2 * END - 22, 2 * END),
        (_OFFSET + _PARTITION > 10, 2 * END - 21, 2 * END),
    ],
    ids=str,
)
def test_conditions_of_polars_leave_out_what_is_not_wanted(
    path: Path, monkeypatch: pytest.MonkeyPatch, condition: polars.Expr, rows: int, most: int
) -> None:
    read: list[int] = []

    def counted(slices: Iterable[Slice], *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in read_slices(slices, columns=columns):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(scan_module, "read_slices", counted)
    whole = duralog.scan(path, topic="orders").to_arrow()
    expected = polars.DataFrame(whole.select(["topic", "partition", "offset", "timestamp"])).filter(condition)
    read.clear()
    for given in (str(path), [str(path)]):
        frame = duralog.scan(given, topic="orders").to_polars()
        found = frame.filter(condition).select("topic", "partition", "offset", "timestamp").collect()
        assert found.equals(expected)
        assert found.height == rows
        assert sum(read) <= most
        read.clear()


def test_a_scan_with_times_of_its_own_is_narrowed_further(path: Path) -> None:
    frame = duralog.scan(path, topic="orders", since=NOW_MS + 100, until=NOW_MS + 900).to_polars()
    found = frame.filter((_TIME >= _LATE) & (_PARTITION == 0)).collect()
    assert found["offset"].to_list() == list(range(890, 900))


def test_what_an_unknown_version_of_polars_says_narrows_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = duralog.scan(path, topic="orders").to_polars()
    for text in ("no JSON", "[]", '{"BinaryExpr": 7}', '{"Function": {"function": {"Boolean": {"IsBetween": 1}}}}'):
        monkeypatch.setattr(polars.Expr, "meta", SimpleNamespace(serialize=lambda text=text, **_: text))
        assert frame.filter(_OFFSET == 7).collect().height == 2


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
