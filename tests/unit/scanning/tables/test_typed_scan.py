"""Typed payloads in a scan: by the schemas of the same directory, also where these changed, and where bytes are bad."""

from __future__ import annotations

import gc
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.errors import CorruptPayload, SchemaError
from tests.support.typed_log import FIRST, SECOND, avro, schema_record, write_typed_log

ROW = {"id": 7, "customer": {"name": "y"}}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed")
    write_typed_log(path)
    return path


def test_versions_come_out_as_one_type(path: Path) -> None:
    found = duralog.scan(path, topic="orders", decode="auto").to_arrow()
    values = found.column("value").to_pylist()
    assert values[:5] == [{"id": n, "customer": None} for n in range(5)]
    assert values[5:10] == [{"id": n, "customer": {"name": "x"}} for n in range(5)]
    assert values[10] is None
    assert found.column("_corrupt").null_count == 11
    assert "subject 'orders-value' version 2" in duralog.scan(path, topic="orders", decode="auto").explain()


def test_fields_that_the_readers_schema_does_not_have_are_named(tmp_path: Path) -> None:
    newer = {**SECOND, "fields": SECOND["fields"][:1]}
    schemas = [schema_record("t-value", 1, 3, SECOND), schema_record("t-value", 2, 4, newer)]
    log = _log(tmp_path, {"t": [avro(SECOND, ROW, 3), avro(newer, {"id": 8}, 4)]}, *schemas)
    found = duralog.scan(log, topic="t", decode="avro")
    assert found.to_arrow()["value"].to_pylist() == [{"id": 7}, {"id": 8}]
    assert (
        "subject 't-value' version 2, without customer of schema id 3, customer.name of schema id 3" in found.explain()
    )
    # With the earlier version, nothing is.
    all_ = duralog.scan(log, topic="t", decode={"value.format": "avro", "value.schema": "t-value:1"})
    assert all_.to_arrow()["value"].to_pylist() == [ROW, {"id": 8, "customer": None}]
    assert "without" not in all_.explain()


def test_fields_are_chosen(path: Path) -> None:
    found = duralog.scan(path, topic="orders", columns=["offset", "value.customer.name"], decode="avro").to_arrow()
    assert found.column_names == ["offset", "value"]
    assert found.column("value").to_pylist()[5] == {"customer": {"name": "x"}}
    with pytest.raises(SchemaError, match=r"give value\.format"):
        duralog.scan(path, topic="orders", columns=["value.id"], decode={"key.format": "string"})


def test_a_schema_of_the_readers(path: Path, tmp_path: Path) -> None:
    text = json.dumps(FIRST)
    file = tmp_path / "order.avsc"
    file.write_text(text)
    for given in ("orders-value:1", "id:3", text, str(file)):
        found = duralog.scan(path, topic="orders", decode={"value.format": "avro", "value.schema": given})
        assert found.schema.field("value").type.num_fields == 1, given
    with pytest.raises(SchemaError, match="no subject"):
        duralog.scan(path, topic="orders", decode={"value.format": "avro", "value.schema": "orders"})


def test_what_does_not_decode_is_kept(path: Path) -> None:
    found = duralog.scan(path, topic="bad", decode="avro").to_arrow()
    assert found.num_rows == 1102
    first, second = found.column("_corrupt").to_pylist()[-2:]
    assert first == {"key": None, "value": b"\0\0\0\0\x09zz", "reason": "value: unknown schema id 9"}
    assert second["value"] == b"\0\0\0\0\x04\x02\x09"
    assert found.column("value").to_pylist()[-2:] == [None, None]
    assert found.column("_corrupt").null_count == 1100
    with pytest.raises(CorruptPayload, match=r"bad-0 offset 1100: the value does not decode: unknown schema id 9"):
        duralog.scan(path, topic="bad", decode={"value.format": "avro", "mode": "failfast"}).to_arrow()
    with pytest.raises(SchemaError, match="never dropped"):
        duralog.scan(path, topic="bad", decode={"value.format": "avro", "mode": "DROPMALFORMED"})


def test_payloads_that_are_null_without_the_column_are_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert duralog.scan(path, topic="bad", columns=["value"], decode="avro").to_arrow()["value"].null_count == 2
    assert caplog.messages == [
        f"{path}: 2 keys or values do not decode and are null: value: unknown schema id 9. Read the column"
        " _corrupt to have their bytes and reasons, or give mode FAILFAST"
    ]
    caplog.clear()
    duralog.scan(path, topic="bad", decode="avro").to_arrow()
    assert not caplog.messages


def test_keys_and_plain_formats(path: Path) -> None:
    found = duralog.scan(path, topic="texts", decode={"key.format": "string", "value.format": "auto"}).to_arrow()
    assert (found.column("key").to_pylist(), found.column("value").to_pylist()) == (["k"], ["plain words"])
    assert duralog.scan(path, topic="documents", decode="json").to_arrow().column("value").to_pylist() == [
        {"a": 1},
        {"a": 2},
    ]


def test_nothing_is_guessed(path: Path) -> None:
    with pytest.raises(SchemaError, match="different types"):
        duralog.scan(path, topics=["orders", "documents"], decode="auto")
    with pytest.raises(SchemaError, match=r"no value of the sample is avro .*; give value\.schema, or value\.framing"):
        duralog.scan(path, topic="texts", decode="avro")
    with pytest.raises(SchemaError, match="expected one of auto"):
        duralog.scan(path, topic="texts", decode="xml")
    with pytest.raises(SchemaError, match=r"no such option of decode: value\.fromat"):
        duralog.scan(path, topic="texts", decode={"value.fromat": "avro"})
    with pytest.raises(SchemaError, match=r"needs schema\.registry\.url"):
        duralog.scan(path, topic="texts", decode={"value.format": "avro", "schema.registry.token": "x"})
    assert duralog.scan(path, topic="texts", decode="binary").schema.field("value").type == "binary"


def _log(path: Path, topics: dict[str, list[bytes | None]], *schemas: duralog.Record) -> Path:
    with duralog.open(path) as store:
        for topic, values in topics.items():
            store.create_topic(topic, 1)
            store.partition(topic, 0).append([duralog.Record(value=value) for value in values])
        if schemas:
            store.create_topic("_schemas", 1)
            store.partition("_schemas", 0).append(list(schemas))
    return path


def test_all_topics_are_all_but_that_of_the_schemas(tmp_path: Path) -> None:
    found = _log(tmp_path, {"a": [avro(FIRST, {"id": 7}, 3)]}, schema_record("a-value", 1, 3, FIRST))
    assert duralog.scan(found, decode="auto").to_arrow().column("value").to_pylist() == [{"id": 7}]
    # Without decoding it is a topic as others are, and with it, too, if it is named.
    assert duralog.scan(found).count() == 2
    named = duralog.scan(found, topics=["_schemas"], decode="auto").to_arrow().column("value").to_pylist()
    assert named[0]["subject"] == "a-value"
    other = _log(tmp_path / "other", {"_own": [b"{}"], "a": [b"a text"]})
    options = {"value.format": "auto", "schema.registry.topic": "_own"}
    assert duralog.scan(other, decode=options).to_arrow().column("topic").to_pylist() == ["a"]
    only = _log(tmp_path / "only", {}, schema_record("a-value", 1, 3, FIRST))
    with pytest.raises(duralog.errors.DuralogError, match="or only Kafka's own and that of the schemas, _schemas"):
        duralog.scan(only, decode="auto")


@pytest.mark.parametrize("format_", ["auto", "avro"])
def test_an_empty_topic_has_the_types_of_the_others(tmp_path: Path, format_: str) -> None:
    schema = schema_record("full-value", 1, 3, FIRST)
    path = _log(tmp_path, {"empty": [], "full": [avro(FIRST, {"id": 7}, 3)], "gone": [None]}, schema)
    found = duralog.scan(path, decode=format_)
    assert "empty: there are no values: they would be as those of full" in found.explain()
    assert found.to_arrow().column("value").to_pylist() == [{"id": 7}, None]


def test_an_empty_topic_has_the_type_of_its_registered_schema(tmp_path: Path) -> None:
    path = _log(tmp_path, {"empty": [], "gone": [None]}, schema_record("empty-value", 1, 3, SECOND))
    planned = duralog.scan(path, topic="empty", decode="auto")
    assert planned.schema.field("value").type.field("id").type == "int64"
    assert (
        "empty: there are no values: they would be avro, framing confluent; columns of schema id 3" in planned.explain()
    )
    assert planned.to_arrow().num_rows == 0
    # What comes later is read by it.
    with duralog.open(path) as store:
        store.partition("empty", 0).append([duralog.Record(value=avro(SECOND, ROW, 3))])
    assert planned.to_arrow().column("value").to_pylist() == [ROW]
    # Another topic has none of its own.
    both = duralog.scan(path, topics=["gone"], decode={"value.format": "avro", "value.schema": "empty-value"})
    assert both.to_arrow().column("value").to_pylist() == [None]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"value.format": "auto"},
            r"topic empty has no values .* subject 'empty-value': give value\.schema .*framing",
        ),
        ({"value.format": "json"}, r"give value\.schema .* and value\.framing, where their schema ids are: confluent"),
        (
            {"value.format": "avro", "value.schema": json.dumps(FIRST)},
            r"to detect the format from: give value\.framing",
        ),
        ({"value.format": "json", "value.schema": "other"}, r"schema id 5 is avro, not json"),
        ({"value.format": "connect"}, r"topic empty has no values, and the schemas of format connect are in these"),
        ({"value.format": "connect", "value.schema": "other"}, r"value\.schema: format connect has none"),
        ({"key.format": "auto"}, r"topic empty has no keys .* give key\.schema"),
    ],
)
def test_an_empty_topic_of_which_nothing_is_known(tmp_path: Path, options: dict[str, str], words: str) -> None:
    path = _log(tmp_path, {"empty": []}, schema_record("other", 1, 5, FIRST))
    with pytest.raises(SchemaError, match=words):
        duralog.scan(path, topic="empty", decode=options)


@pytest.mark.parametrize(
    "options",
    [
        {"value.format": "avro", "value.schema": json.dumps(FIRST), "value.framing": "none"},
        {
            "value.format": "json",
            "value.schema": '{"properties": {"id": {"type": "integer"}}}',
            "value.framing": "none",
        },
        {"value.format": "string"},
    ],
)
def test_an_empty_topic_of_which_the_user_says_all(tmp_path: Path, options: dict[str, str]) -> None:
    found = duralog.scan(_log(tmp_path, {"empty": []}), decode=options)
    assert found.to_arrow().num_rows == 0


def test_text_of_one_topic_is_not_the_json_of_another(tmp_path: Path) -> None:
    """Both are strings to Arrow."""
    path = _log(tmp_path, {"texts": [b'{"x":"s"}'], "mixed": [b'{"x":"s"}', b'{"x":5}']})
    with pytest.raises(SchemaError, match="mixed and texts are of different types"):
        duralog.scan(path, decode="json")
    assert duralog.scan(path, topic="mixed", decode="json").to_arrow()["value"].to_pylist() == [
        {"x": '"s"'},
        {"x": "5"},
    ]


def test_the_plan_is_a_value(path: Path) -> None:
    planned = duralog.scan(path, topic="orders", decode="auto")._typed
    assert planned is not None
    again = pickle.loads(pickle.dumps(planned))
    assert again.schema(None) == planned.schema(None)


@pytest.mark.parametrize(
    ("topic", "options", "finding"),
    [
        # The ids of another context, found by the topic's subject there, or by the schema that is named.
        ("contexts", {"value.format": "auto"}, "columns of subject ':.prod:contexts-value' version 1"),
        ("contexts", {"value.format": "avro", "value.schema": "latest"}, "columns of schema id 1 of context .prod"),
        ("contexts", {"value.schema": ":.prod:contexts-value:1"}, "columns of schema id 1 of context .prod"),
        ("contexts", {"value.schema": "{file}"}, "columns of the given schema"),
        # Without ids, by what the sample says. A schema alone says the format, too.
        ("plain", {"value.schema": "{file}"}, "framing none: all 3 of the sample decode, without schema ids"),
        ("plain", {"value.schema": "id:4"}, "framing none: all 3 of the sample decode, without schema ids"),
        ("plain", {"value.schema": "{file}", "value.framing": "NONE"}, "framing none; columns of the given schema"),
        # Ids that no one knows, with what wrote them.
        (
            "foreign",
            {"value.schema": "any:{file}"},
            "Confluent's schema ids (unknown ones); columns of the given schema",
        ),
        ("foreign", {"value.format": "avro", "value.schema": "any:id:4"}, "(unknown ones); columns of schema id 4"),
        ("foreign", {"value.schema": "any:id:4", "value.framing": "confluent"}, "framing confluent; columns of schema"),
        ("foreign", {"value.format": "auto", "schema.files": "98={file}, 99={file}"}, "ids (99); columns of schema id"),
    ],
)
def test_where_the_ids_are(path: Path, tmp_path: Path, topic: str, options: dict[str, str], finding: str) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SECOND))
    given = {name: text.replace("{file}", str(file)) for name, text in options.items()}
    found = duralog.scan(path, topic=topic, decode=given)
    assert finding in found.explain()
    assert found.to_arrow().column("value").to_pylist() == [ROW] * 3


@pytest.mark.parametrize(
    ("topic", "options", "words"),
    [
        ("foreign", {"value.format": "avro", "value.schema": "id:4"}, "give value.schema=any:FILE"),
        ("foreign", {"value.format": "auto"}, r"Confluent's schema ids \(99\)"),
        ("plain", {"value.format": "avro", "value.framing": "none"}, "without schema ids: give value.schema"),
        ("plain", {"value.format": "auto", "value.framing": "glue"}, "is not certain"),
        ("plain", {"value.format": "long", "value.schema": "id:4"}, "format long has none"),
        ("plain", {"value.schema": json.dumps(FIRST)}, "give value.format, too"),
        ("plain", {"value.framing": "confluent"}, "nothing is decoded without value.format"),
        ("plain", {"schema.registry.url": "http://x"}, "nothing is decoded without value.format"),
        ("orders", {"value.format": "protobuf", "value.schema": "id:4"}, "is of type AVRO"),
        ("nothing", {"value.format": "auto"}, "has no values"),
        ("foreign", {"value.format": "auto", "schema.files": "99:order.avsc"}, "expected ID=FILE or GUID=FILE"),
        ("foreign", {"value.format": "auto", "schema.files": "99=missing.avsc"}, "missing.avsc: No such file"),
    ],
)
def test_what_is_not_certain_is_an_error(path: Path, topic: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        duralog.scan(path, topic=topic, decode=options)


def test_conditions_look_into_decoded_payloads(path: Path) -> None:
    def offsets(where: str, **more: Any) -> list[int]:
        found = duralog.scan(path, decode={"value.format": "avro", "key.format": "string"}, where=where, **more)
        assert found.count() == found.to_arrow().num_rows
        return list(found.to_arrow().column("offset").to_pylist())

    assert offsets("$.id = 3", topic="orders") == [3, 8]
    assert offsets('key = "a" and $.customer.name = "x"', topic="orders", columns=["offset"]) == [5, 6, 7, 8, 9]
    # Fields that are not among the columns, and payloads that do not decode.
    assert offsets('$.customer.name = "x" and $.id > 2', topic="orders", columns=["offset", "value.id"]) == [8, 9]
    assert offsets("value contains 0x0904", topic="bad") == []
    assert offsets('value contains "zz"', topic="bad") == [1100]
    assert offsets("value = null", topic="orders") == [10]


def test_bad_payloads_with_conditions(path: Path) -> None:
    options = {"value.format": "avro", "mode": "FAILFAST"}
    found = duralog.scan(path, topic="bad", decode=options, where='value contains "zz"', columns=["offset"])
    assert found.count() == 1
    assert found.to_arrow().column("offset").to_pylist() == [1100]
    with pytest.raises(CorruptPayload, match="bad-0 offset 1100"):
        duralog.scan(path, topic="bad", decode=options, where='value contains "zz"').to_arrow()


def test_schemas_that_are_registered_during_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.schemas.payload_decoder._LOOKUP_SECONDS", 0)
    newer = {**FIRST, "fields": [{"name": "note", "type": "string"}, *FIRST["fields"]]}
    with duralog.open(tmp_path) as store:
        store.create_topic("_schemas", 1)
        store.create_topic("orders", 1)
        store.partition("_schemas", 0).append([schema_record("orders-value", 1, 3, FIRST)])
        store.partition("orders", 0).append([duralog.Record(value=avro(FIRST, {"id": 1}, 3))])
        found = duralog.scan(tmp_path, topic="orders", decode="auto")
        sent = pickle.loads(pickle.dumps(found._typed))
        assert found.to_arrow().column("value").to_pylist() == [{"id": 1}]
        store.partition("orders", 0).append([duralog.Record(value=avro(newer, {"note": "x", "id": 2}, 4))])
        # The id is not there yet: that is remembered for no longer than a moment.
        assert found.to_arrow().column("_corrupt").to_pylist()[1]["reason"] == "value: unknown schema id 4"
        store.partition("_schemas", 0).append([schema_record("orders-value", 2, 4, newer)])
        assert found.to_arrow().column("value").to_pylist() == [{"id": 1}, {"id": 2}]
        records = duralog.scan(tmp_path, topic="orders").to_arrow().combine_chunks().to_batches()[0]
        assert sent.decode(records).columns["value"].to_pylist() == [{"id": 1}, {"id": 2}]


def test_conditions_know_schemas_that_were_registered_later(tmp_path: Path) -> None:
    newer = {**FIRST, "fields": [{"name": "note", "type": "string"}, *FIRST["fields"]]}
    with duralog.open(tmp_path) as store:
        store.create_topic("_schemas", 1)
        store.create_topic("orders", 1)
        store.partition("_schemas", 0).append([schema_record("orders-value", 1, 3, FIRST)])
        store.partition("orders", 0).append([duralog.Record(value=avro(FIRST, {"id": 1}, 3))])
        asked = [duralog.scan(tmp_path, topic="orders", decode="auto", where="$.id = 2") for _ in range(2)]
        assert asked[0].count() == 0
        store.partition("_schemas", 0).append([schema_record("orders-value", 2, 4, newer)])
        store.partition("orders", 0).append([duralog.Record(value=avro(newer, {"note": "x", "id": 2}, 4))])
        assert asked[0].to_arrow().column("value").to_pylist() == [{"id": 2}]
        # The first stream ends where the log ended at the call.
        assert asked[1].count() == 0
        assert asked[1].count() == 1


def test_conditions_compare_decimals_as_numbers(tmp_path: Path) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}
    prices = {"type": "map", "values": {"type": "array", "items": money}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "m", "type": money}, {"name": "p", "type": prices}]}
    amounts = [Decimal("9.99"), Decimal("-10.00"), Decimal("10.50"), Decimal("12345678901234567890123456.78")]
    with duralog.open(tmp_path) as store:
        store.create_topic("money", 1)
        payloads = [avro(schema, {"m": each, "p": {"x": [each]}}, 0)[5:] for each in amounts]
        store.partition("money", 0).append([duralog.Record(value=each) for each in payloads])
    options = {"value.format": "avro", "value.schema": json.dumps(schema), "value.framing": "none"}

    def found(where: str) -> list[Decimal]:
        rows = duralog.scan(tmp_path, topic="money", decode=options, where=where, columns=["value.m"]).to_arrow()
        return [row["m"] for row in rows.column("value").to_pylist()]

    assert found("$.m > 10") == amounts[2:]
    assert found("$.m = -10 or $.p.x[0] = 10.5") == amounts[1:3]
    assert found("$.m = 12345678901234567890123456.78") == amounts[3:]
    assert found("$.m = 12345678901234567890123456.79") == []


def test_decimals_that_other_libraries_do_not_have(tmp_path: Path) -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    fields = [{"name": "a", "type": wide}, {"name": "b", "type": {"type": "array", "items": wide}}]
    schema = {
        "type": "record",
        "name": "Wide",
        "fields": [*fields, {"name": "c", "type": {"type": "map", "values": wide}}],
    }
    value = {"a": Decimal("1.50"), "b": [Decimal("-2.25")], "c": {"x": Decimal("3.00")}}
    with duralog.open(tmp_path) as store:
        store.create_topic("wide", 1)
        log = store.partition("wide", 0)
        log.append([duralog.Record(value=avro(schema, value, 1)[5:])])
        options = {"value.format": "avro", "value.schema": json.dumps(schema)}
        found = duralog.scan(tmp_path, topic="wide", columns=["value"], decode=options)
        assert found.to_arrow().column("value")[0].as_py()["a"] == value["a"]
        expected = {"a": "1.50", "b": ["-2.25"]}
        shown = found.to_duckdb("wide").execute("select value from wide").fetchall()[0][0]
        assert {name: shown[name] for name in expected} == expected
        for frame in (found.to_polars().collect(), log.to_polars(columns=["value"], decode=options)):
            assert {name: frame["value"][0][name] for name in expected} == expected


def test_conditions_look_into_json_that_the_sample_has_not_seen(tmp_path: Path) -> None:
    written: list[Any] = [{"id": n, "made": {"by": "x"}, "parts": [{"n": n}], "mixed": n} for n in range(1, 1500)]
    written[0]["mixed"] = {"a": 1}
    written[1300] |= {"coupon": "c", "made": {"at": 5}, "parts": [{"n": 7, "color": "red"}], "mixed": {"a": 2}}
    with duralog.open(tmp_path) as store:
        for topic in ("plain", "events"):
            store.create_topic(topic, 1)
            values = written if topic == "plain" else [_event(each) for each in written]
            records = [duralog.Record(value=json.dumps(value).encode()) for value in values]
            store.partition(topic, 0).append(records)

    def offsets(topic: str, where: str) -> list[int]:
        found = duralog.scan(tmp_path, topic=topic, decode="auto", where=where, columns=["offset"])
        return list(found.to_arrow().column("offset").to_pylist())

    for topic, place in (("plain", "$"), ("events", "$.after")):
        for condition in ('coupon = "c"', "made.at = 5", 'parts[0].color = "red"', "mixed.a = 2"):
            assert offsets(topic, f"{place}.{condition}") == [1300], condition
        assert offsets(topic, f"{place}.id = 3") == [2]
        assert offsets(topic, f'{place}.made.by = "y"') == []


def _event(after: Any) -> Any:
    return {"schema": None, "payload": {"before": None, "after": after, "source": {}, "op": "c", "ts_ms": 1}}


def test_fields_that_the_sample_has_not_seen_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with duralog.open(tmp_path) as store:
        store.create_topic("plain", 1)
        values = [{"id": n} | ({"coupon": "c"} if n > 1100 else {}) for n in range(1200)]
        store.partition("plain", 0).append([duralog.Record(value=json.dumps(each).encode()) for each in values])
    found = duralog.scan(tmp_path, topic="plain", decode="auto")
    assert not caplog.messages
    expected = (
        f"{tmp_path}: fields of JSON that the sampled records do not have are left out: value.coupon (99x). To have"
        " them, give value.format json with a JSON Schema as value.schema, or read the bytes"
    )
    for times in (1, 2):
        assert found.to_arrow().column("value").to_pylist()[-1] == {"id": 1199}
        assert caplog.messages == [expected] * times
    # A stream that is dropped before its end.
    reader = found.to_arrow_batch_reader()
    rows = 0
    while rows < 1200:
        rows += reader.read_next_batch().num_rows
    assert len(caplog.messages) == 2
    del reader
    gc.collect()
    assert caplog.messages == [expected] * 3
    caplog.clear()
    with duralog.open(tmp_path, read_only=True) as store:
        store.partition("plain", 0).read_arrow(decode="json")
    assert caplog.messages == [expected.replace(f"{tmp_path}:", "plain-0:")]
    caplog.clear()
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
    duralog.scan(tmp_path, topic="plain", decode={"value.format": "json", "value.schema": schema}).to_arrow()
    assert not caplog.messages
