"""Decoded records for people: the names of the schemas that wrote them."""

from __future__ import annotations

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
