"""Decoded records for people: the names of the schemas that wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import duralog
from duralog.operations.records.decoded import RecordDecoder, record_columns
from duralog.schemas.decode_options import Decode
from tests.support.schemas.presence import present
from tests.support.typed_log import FIRST, avro, schema_record


def test_the_same_id_in_another_context_is_another_schema(tmp_path: Path) -> None:
    other = {"type": "record", "name": "Other", "fields": [{"name": "count", "type": "long"}]}
    with duralog.open(tmp_path) as store:
        store.create_topic("_schemas", 1)
        store.partition("_schemas", 0).append(
            [schema_record(":.prod:others-value", 1, 3, other), schema_record("orders-value", 1, 3, FIRST)]
        )
        store.create_topic("copies", 1)
        log = store.partition("copies", 0)
        log.append([duralog.Record(value=avro(FIRST, {"id": 7}, 3))])
        decode = present(Decode.of({"value.format": "avro"}))
        decoder = RecordDecoder(
            decode, lambda topic, columns: duralog.scan(tmp_path, topic=topic, columns=columns)
        ).topic("copies")
        for by_writer in (False, True):
            batch = record_columns("copies", 0, list(log.read(0)))
            found = present(decoder.decode(batch, by_writer=by_writer)[0].value)
            assert (found.value, found.schema) == ({"id": 7}, "orders-value version 1 (id 3)")


def test_json_is_shown_as_it_was_written(tmp_path: Path) -> None:
    """Records may have fields, and types, that no record of the sample has."""
    values = [*({"id": number} for number in range(1100)), {"late": {"a": [1]}}, {"id": "x", "n": None}, [1], None]
    event = {"before": None, "after": {"id": 1}, "source": {}, "op": "c", "ts_ms": 1}
    events = [*[event] * 1100, {**event, "after": {"id": 1, "late": "x"}}, {**event, "after": {"id": "y"}}]
    with duralog.open(tmp_path) as store:
        for topic, written in (("plain", values), ("events", events)):
            store.create_topic(topic, 1)
            payloads = [*(json.dumps(each).encode() for each in written), b"{", None]
            store.partition(topic, 0).append([duralog.Record(value=each) for each in payloads])
        decoder = RecordDecoder(
            present(Decode.of({"value.format": "json"})),
            lambda topic, columns: duralog.scan(tmp_path, topic=topic, columns=columns),
        )
        found = decoder.decode("plain", 0, list(store.partition("plain", 0).read(1000)))
        assert [present(each.value).value for each in found] == [*values[1000:], None, None]
        reasons = [present(each.value).reason for each in found]
        assert reasons[-2] is not None
        assert [*reasons[:-2], reasons[-1]] == [None] * (len(reasons) - 1)
        decoder = RecordDecoder(
            present(Decode.of({"value.format": "auto"})),
            lambda topic, columns: duralog.scan(tmp_path, topic=topic, columns=columns),
        )
        found = decoder.decode("events", 0, list(store.partition("events", 0).read(1090)))
        rows = [None if (read := present(each.value)).value is None else read.value["after"] for each in found]
        assert rows[:10] == [{"id": 1}] * 10
        assert rows[10:] == [{"id": 1, "late": "x"}, {"id": "y"}, None, None]
