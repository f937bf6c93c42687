"""`duralog.scan`: all records in order, whatever the threads; segments are left out by time, rows exactly."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import duralog
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.scanning.tables import scan_planning
from tests.support.spark.planned_log import NOW_MS, fill, offsets, open_for_writing, record

END = 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scanned")
    with open_for_writing(path) as store:
        store.create_topic("orders", 2)
        store.create_topic("empty", 1)
        for number in range(2):
            fill(store.partition("orders", number), 0, END)
    return path


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_planning, "SLICE_BYTES", 3000)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("threads", [1, 3])
def test_it_is_what_the_logs_have(path: Path, threads: int) -> None:
    found = duralog.scan(path, threads=threads).read_all()
    with duralog.open(path, read_only=True) as store:
        logs = [store.partition("orders", number).read_arrow() for number in range(2)]
    assert found.equals(pa.concat_tables(logs))


def test_columns_and_partitions_are_chosen(path: Path) -> None:
    reader = duralog.scan(path, topics=["orders"], partition=1, columns=["value", "offset"])
    assert reader.schema.names == ["offset", "value"]
    assert offsets(reader.read_all()) == list(range(END))
    assert duralog.scan(path, topics=["empty"]).read_all() == RECORD_SCHEMA.empty_table()
    with pytest.raises(duralog.UnknownTopic, match="there is no topic orderz"):
        duralog.scan(path, topics=["orderz"])
    with pytest.raises(ValueError, match="no such column: values"):
        duralog.scan(path, columns=["values"])


@pytest.mark.parametrize(("first", "end"), [(333, None), (None, 777), (333, 777), (END, None)])
def test_times_are_exact(path: Path, first: int | None, end: int | None) -> None:
    found = duralog.scan(
        path,
        partition=0,
        columns=["offset"],
        not_before_ms=None if first is None else NOW_MS + first,
        before_ms=None if end is None else NOW_MS + end,
    ).read_all()
    assert found.column_names == ["offset"]
    assert offsets(found) == list(range(first or 0, END if end is None else end))


@pytest.mark.usefixtures("small_slices")
def test_a_reader_that_is_dropped_leaves_no_thread(path: Path) -> None:
    reader = duralog.scan(path)
    reader.read_next_batch()
    reader.close()
    del reader
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("duralog-scan")]


def test_damage_is_raised_where_it_is_reached(path: Path, tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 0, 100)
    log = next(tmp_path.glob("orders-0/*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    reader = duralog.scan(tmp_path)
    found: list[int] = []
    with pytest.raises(duralog.CorruptRecord):
        found.extend(offset for batch in reader for offset in batch.column("offset").to_pylist())
    assert found == list(range(50))


def test_only_committed_records(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        for number in range(3):
            records = [record(value) for value in range(10)]
            log.append(records, producer_id=1, producer_epoch=0, base_sequence=number * 10, is_transactional=True)
            if number < 2:
                log.end_transaction(1, 0, commit=number == 1)
    committed = duralog.scan(tmp_path, isolation="read_committed").read_all()
    assert offsets(committed) == list(range(11, 21))
    assert len(offsets(duralog.scan(tmp_path).read_all())) == 30


@pytest.mark.usefixtures("small_slices")
def test_a_compacted_log(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact"})
        log = store.partition("orders", 0)
        fill(log, 0, END)
        log.roll()
        store.compact("orders", 0)
        kept = log.read_arrow()
    assert offsets(kept) == list(range(END - 50, END))
    assert duralog.scan(tmp_path).read_all().equals(kept)


def test_wrong_arguments_are_refused_at_the_call(path: Path) -> None:
    with pytest.raises(ValueError, match="threads must be 1 or more, not 0"):
        duralog.scan(path, threads=0)
    with pytest.raises(TypeError, match=r"topics must be a list of names: give \['orders'\] instead of 'orders'"):
        duralog.scan(path, topics="orders")
    with pytest.raises(TypeError, match="columns must be a list of names"):
        duralog.scan(path, columns="key")
