"""Tables of a log with decoded keys and values: the same as those of a scan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.errors import CorruptPayload, SchemaError
from tests.support.typed_log import FIRST, SECOND, avro, write_typed_log


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed")
    write_typed_log(path)
    with duralog.open(path) as store:
        store.create_topic("halves", 2)
        store.partition("halves", 0).append([duralog.Record(value=b'{"a": 1}')])
        store.partition("halves", 1).append([duralog.Record(value=b'{"a": 2, "b": 3}')])
        store.create_topic("empty", 1)
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["writing", "reading"])
def store(path: Path, request: pytest.FixtureRequest) -> Iterator[duralog.Store]:
    with duralog.open(path, read_only=request.param) as store:
        yield store


@pytest.mark.parametrize(
    ("topic", "partition", "options"),
    [
        ("orders", 0, {"decode": "auto"}),
        ("orders", 0, {"decode": "avro", "columns": ["offset", "value.customer.name"]}),
        ("orders", 0, {"decode": {"value.format": "avro", "value.schema": "orders-value:1", "key.format": "string"}}),
        ("orders", 0, {"decode": {"value.schema": json.dumps(FIRST), "value.format": "avro"}}),
        ("bad", 0, {"decode": "auto", "isolation": "read_committed"}),
        ("texts", 0, {"decode": {"key.format": "string", "value.format": "auto"}}),
        ("halves", 1, {"decode": "json"}),
        ("texts", 0, {"decode": "binary"}),
    ],
)
def test_the_same_as_a_scan(
    store: duralog.Store, path: Path, topic: str, partition: int, options: dict[str, Any]
) -> None:
    log = store.partition(topic, partition)
    for _ in range(2):
        found = log.read_arrow(**options)
        expected = duralog.scan(path, topic=topic, partition=partition, **options).to_arrow()
        assert found.schema == expected.schema
        assert found.to_pylist() == expected.to_pylist()


def test_a_part_of_a_log_and_frames(store: duralog.Store) -> None:
    log = store.partition("orders", 0)
    assert log.read_arrow(4, 6, decode="auto").column("value").to_pylist() == [
        {"id": 4, "customer": None},
        {"id": 0, "customer": {"name": "x"}},
    ]
    assert log.to_pandas(5, 7, decode="auto")["value"].tolist()[1]["id"] == 1
    assert log.to_polars(5, 7, decode="auto")["value"].struct.field("id").to_list() == [0, 1]


def test_what_was_appended_since_is_decoded(tmp_path: Path) -> None:
    write_typed_log(tmp_path)
    with duralog.open(tmp_path) as store:
        log = store.partition("orders", 0)
        before = log.read_arrow(decode="auto").num_rows
        log.append([duralog.Record(value=avro(SECOND, {"id": 77, "customer": None}, 4))])
        assert log.read_arrow(before, decode="auto").column("value").to_pylist() == [{"id": 77, "customer": None}]
        store.create_topic("new", 1)
        store.partition("new", 0).append([duralog.Record(value=avro(FIRST, {"id": 5}, 3))])
        assert store.partition("new", 0).read_arrow(decode="auto")["value"].to_pylist() == [{"id": 5, "customer": None}]


def test_what_cannot_be_decoded(store: duralog.Store) -> None:
    with pytest.raises(SchemaError, match="has no values to detect the format from"):
        store.partition("empty", 0).read_arrow(decode="auto")
    options = {"value.format": "avro", "value.schema": "orders-value", "value.framing": "confluent"}
    assert store.partition("empty", 0).read_arrow(decode=options).num_rows == 0
    with pytest.raises(CorruptPayload, match="bad-0 offset 1100"):
        store.partition("bad", 0).read_arrow(decode={"value.format": "avro", "mode": "FAILFAST"})
    with pytest.raises(SchemaError, match="no such option of decode"):
        store.partition("bad", 0).read_arrow(decode={"value.fromat": "avro"})
