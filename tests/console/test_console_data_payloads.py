"""Decoded keys and values as sources give them: formats, conditions, downloads, and schemas that come later."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import duralog
from duralog.console.drawing.topic_place import topic_place_of
from duralog.console.facts.records import ShownRecord
from duralog.console.source import Source
from duralog.console.sources.opening import open_source
from duralog.errors import DuralogError
from duralog.schemas.decode_options import Decode
from duralog.testing import running_broker
from tests.console.conftest import Stores
from tests.support.console import typed_store
from tests.support.console.console_stores import KEEP_EVERYTHING
from tests.support.console.typed_store import HOSTILE_NAME, ORDERS, add_bad_ones, registered


@pytest.fixture
def source(stores: Stores) -> Iterator[Source]:
    opened = open_source(str(stores["typed"]), start=False)
    yield opened
    opened.close()


def decoded(source: Source, topic: str) -> tuple[ShownRecord, ...]:
    return source.payloads.decoded(topic, 0, source.records(topic, 0, offset=0, limit=100).records)


def offsets(source: Source, where: str, topic: str = "orders") -> list[int]:
    existing = [row.partition for row in source.topic(topic)]
    wanted = topic_place_of({"where": where, "order": "oldest"}).wanted(topic, existing, now_ms=0)
    search = source.topic_searches.start(wanted)
    search.wait()  # type: ignore[attr-defined]
    assert search.progress().error is None
    return [each.record.offset for each in search.found()]


def downloaded(source: Source, extension: str) -> bytes:
    file = source.payloads.decoded_file("orders", extension)
    wanted = topic_place_of({}).wanted("orders", [0], now_ms=0)
    batches = source.topic_searches.matching(wanted, lambda _: None, lambda: False)
    return b"".join([*(file.feed(batch) for batch in batches), file.finish()])


def test_each_record_has_the_fields_that_were_written(source: Source) -> None:
    records = decoded(source, "orders")
    first, last = records[0].decoded_value, records[-1].decoded_value
    assert first is not None
    assert last is not None
    assert json.loads(first.text or "") == {"id": 0, "customer": HOSTILE_NAME, "gift": True}
    assert (first.schema, first.subject, first.version) == ("orders-value version 1 (id 1)", "orders-value", 1)
    assert list(json.loads(last.text or "")) == ["id", "customer", "note", "placed"]
    assert records[0].decoded_key is None
    assert source.payloads.formats("orders").summary == "Keys: string. Values: avro."


@pytest.mark.parametrize(
    ("topic", "text"), [("clicks", '{"page":"/0","x":0}'), ("payments", '{"id":1,"payer":"ana"}'), ("numbers", None)]
)
def test_formats_are_found_out_or_left_alone(source: Source, topic: str, text: str | None) -> None:
    value = decoded(source, topic)[0].decoded_value
    assert (None if value is None else value.text) == text
    if text is None:
        (finding,) = source.payloads.formats(topic).findings
        assert "not certain" in finding
        assert "--value-format" in finding


def test_a_format_that_was_named(stores: Stores) -> None:
    named = open_source(str(stores["typed"]), start=False, decode=Decode.of("long") or Decode())
    assert [record.decoded_value and record.decoded_value.text for record in decoded(named, "numbers")] == list("01234")
    assert offsets(named, "value = 3", "numbers") == [3]
    named.close()
    off = open_source(str(stores["typed"]), start=False, decode=Decode())
    assert decoded(off, "orders")[0].decoded_value is None
    assert off.payloads.formats("orders").findings == ()
    off.close()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("$.id > 37", [38, 39]),
        ("$.gift = true and $.id < 4", [0, 2]),
        ("not $.note exists and $.id >= 18", [18, 19]),
        ('value contains "note 2"', list(range(20, 30))),
        ("value matches '\"id\":3,'", [3]),
        ("key = order-7", [7]),
        ("value = null", []),
        ("value contains 0x00 and $.id = 1", [1]),
        ("value != nothing and $.id = 1", [1]),
    ],
)
def test_conditions_look_into_decoded_values(source: Source, where: str, found: list[int]) -> None:
    assert offsets(source, where) == found


def test_downloads_have_decoded_columns(source: Source) -> None:
    lines = [json.loads(line) for line in downloaded(source, "jsonl").splitlines()]
    assert len(lines) == ORDERS
    assert lines[1]["value"] == {"id": 1, "customer": "customer-1", "gift": False}
    assert lines[1]["value_schema"] == "orders-value version 1 (id 1)"
    rows = list(csv.DictReader(io.StringIO(downloaded(source, "csv").decode(), newline="")))
    assert json.loads(rows[39]["value_decoded"])["note"] == "note 39"
    assert (rows[39]["value_schema"], rows[39]["value_error"]) == ("orders-value version 2 (id 2)", "")
    table = pq.read_table(io.BytesIO(downloaded(source, "parquet")))
    assert table.column("value").to_pylist()[1]["customer"] == "customer-1"
    assert table.column("value").to_pylist()[39]["note"] == "note 39"
    assert table.column("_corrupt").null_count == ORDERS


def test_new_schemas_and_records_are_noticed(stores: Stores, tmp_path: Path) -> None:
    """A console stays open for days: topics come, are not understood at first, and schemas are registered late."""
    directory = stores.copied("typed", tmp_path / "data")
    now = [0]
    from duralog.console.sources.directory.source import DirectorySource

    source = DirectorySource(str(directory), clock=lambda: now[0])
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        store.create_topic("late", 1, {"retention.ms": -1})
    source.step()
    assert source.payloads.formats("late").summary == "Keys: none yet. Values: none yet."
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        value = typed_store.avro(typed_store.ORDER_1, {"id": 7, "customer": "c", "gift": False}, 50)
        store.partition("late", 0).append([duralog.Record(value=value)])
    source.step()
    now[0] += 60_000
    assert source.payloads.formats("late").summary == "Keys: none yet. Values: as bytes."
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        store.partition("_schemas", 0).append([registered("late-value", 1, 50, typed_store.ORDER_1)])
    source.step()
    found = decoded(source, "late")[0].decoded_value
    assert found is not None
    assert found.schema == "late-value version 1 (id 50)"
    assert decoded(source, "orders")[-1].decoded_value is not None
    add_bad_ones(directory)
    source.step()
    unknown, cut, tombstone = decoded(source, "orders")[-3:]
    assert unknown.decoded_value is not None
    assert unknown.decoded_value.text is None
    assert unknown.decoded_value.reason == "unknown schema id 77"
    assert cut.decoded_value is not None
    assert cut.decoded_value.reason
    assert cut.decoded_value.subject == "orders-value"
    assert tombstone.decoded_value is None
    assert tombstone.is_tombstone
    source.close()


def test_a_registry_that_is_away(stores: Stores) -> None:
    decode = Decode.of({"value.format": "auto", "schema.registry.url": "http://me:secret@127.0.0.1:9"})
    assert decode is not None
    source = open_source(str(stores["typed"]), start=False, decode=decode)
    assert decoded(source, "orders")[0].decoded_value is None
    (finding,) = source.payloads.formats("orders").findings
    assert "127.0.0.1:9" in finding
    assert "secret" not in finding
    view = source.payloads.subjects()
    assert view.trouble is not None
    assert "secret" not in f"{view.origin} {view.trouble}"
    with pytest.raises(DuralogError):
        open_source("127.0.0.1:9", start=False).payloads.of("orders")  # type: ignore[attr-defined]
    source.close()


def test_a_broker_and_its_registry(stores: Stores, tmp_path: Path) -> None:
    directory = stores.copied("typed", tmp_path / "data")
    with running_broker(KEEP_EVERYTHING, data=str(directory)) as broker:
        source = open_source(broker.bootstrap_servers, start=False)
        source.step()
        assert decoded(source, "orders")[1].decoded_value is not None
        assert offsets(source, "$.id > 37") == [38, 39]
        view = source.payloads.subjects()
        assert "orders-value" in view.catalogue.subjects()
        assert view.level("orders-value") == ("BACKWARD", "subject")
        assert view.level("money") == ("FULL", "all subjects")
        source.close()
