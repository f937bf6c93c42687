"""Payloads that confluent-kafka's serializers wrote: each value is what its deserializers read."""

from __future__ import annotations

import datetime
import json
import pickle
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duralog.columnar.schema import HEADER_TYPE
from duralog.schemas import DecoderPlan, Format, Framing, PayloadDecoder, detect_format, find_schema
from tests.support.schemas.presence import present
from tests.support.schemas.registry_records import catalogue_of

pytest.importorskip("authlib", reason="confluent-kafka's registry client needs it")

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

HEADERS = pa.list_(pa.field("item", HEADER_TYPE))
UTC = datetime.UTC


@pytest.fixture
def client() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def context(part: str = "value", headers: Any = None) -> SerializationContext:
    return SerializationContext("orders", MessageField(part), headers)


def rows_of(decoded: Any) -> list[Any]:
    assert decoded.reasons.null_count == len(decoded.reasons), decoded.reasons
    decoded.values.validate(full=True)
    return list(decoded.values.to_pylist())


ORDER_1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [{"name": "id", "type": "int"}]}},
    ],
}
ORDER_2 = {**ORDER_1, "fields": [*ORDER_1["fields"], {"name": "weight", "type": "double", "default": 1.5}]}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number * 2**40,
        "note": None if number % 2 else f"größe {number}",
        "price": Decimal(number) / 100,
        "at": datetime.datetime(2026, 1, 1, 12, 0, 0, number, tzinfo=UTC),
        "day": datetime.date(1969, 12, 31),
        "tags": ["a"] * (number % 3),
        "kind": "NEW",
        "customer": {"id": -number},
    }


class TestAvro:
    def test_two_versions_in_one_topic(self, client):
        first, second = AvroSerializer(client, json.dumps(ORDER_1)), AvroSerializer(client, json.dumps(ORDER_2))
        payloads = [
            second({**order(n), "weight": n / 7}, context()) if n % 3 else first(order(n), context()) for n in range(30)
        ]
        payloads[4] = None
        catalogue = catalogue_of(client)
        reader = AvroDeserializer(client, json.dumps(ORDER_2))
        plan = DecoderPlan(
            format=Format.AVRO,
            framing=Framing.CONFLUENT,
            reader=find_schema(catalogue, "orders-value"),
            catalogue=catalogue,
        )
        decoder = pickle.loads(pickle.dumps(PayloadDecoder(plan)))
        column = pa.array(payloads, pa.binary())
        decoded = decoder.decode(column)
        assert decoded.values.type == decoder.arrow_type
        assert rows_of(decoded) == [None if each is None else reader(each, context()) for each in payloads]
        # The same object again, and a slice.
        assert rows_of(decoder.decode(column[7:12])) == rows_of(decoded)[7:12]
        found = detect_format(column, catalogue, topic="orders")
        assert present(found.plan).reader == plan.reader
        assert found.finding == (
            "avro: all 29 of the sample have Confluent's schema ids (1, 2); columns of subject 'orders-value' version 2"
        )

    def test_an_older_reader_and_pruned_columns(self, client):
        payloads = [
            AvroSerializer(client, json.dumps(schema))({**order(3), "weight": 2.0}, context())
            for schema in (ORDER_1, ORDER_2)
        ]
        catalogue = catalogue_of(client)
        plan = DecoderPlan(
            format=Format.AVRO,
            framing=Framing.CONFLUENT,
            reader=find_schema(catalogue, "orders-value:1"),
            catalogue=catalogue,
            columns=("customer.id", "tags"),
        )
        assert rows_of(PayloadDecoder(plan).decode(pa.array(payloads))) == [{"tags": [], "customer": {"id": -3}}] * 2

    def test_guids_in_headers(self, client):
        serializer = AvroSerializer(
            client,
            json.dumps(ORDER_1),
            conf={"schema.id.serializer": header_schema_id_serializer, "auto.register.schemas": True},
        )
        headers: list[list[tuple[str, bytes]]] = [[] for _ in range(3)]
        payloads = [serializer(order(n), context("value", headers[n])) for n in range(3)]
        assert {len(each[0][1]) for each in headers} == {17}
        catalogue = catalogue_of(client)
        found = detect_format(pa.array(payloads), catalogue, pa.array(headers, HEADERS))
        assert "columns of" in found.finding
        decoder = PayloadDecoder(present(found.plan))
        assert rows_of(decoder.decode(pa.array(payloads), pa.array(headers, HEADERS))) == [order(n) for n in range(3)]

    def test_references_and_keys(self, client):
        customer = {"type": "record", "name": "shop.Customer", "fields": [{"name": "id", "type": "int"}]}
        client.register_schema("customers", Schema(json.dumps(customer), "AVRO"))
        text = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "who", "type": "shop.Customer"}]})
        schema = Schema(text, "AVRO", [SchemaReference("shop.Customer", "customers", 1)])
        serializer = AvroSerializer(client, schema)
        payload = serializer({"who": {"id": 5}}, context("key"))
        catalogue = catalogue_of(client)
        reader = find_schema(catalogue, "orders-key")
        plan = DecoderPlan(
            format=Format.AVRO, framing=Framing.CONFLUENT, part="key", reader=reader, catalogue=catalogue
        )
        decoder = pickle.loads(pickle.dumps(PayloadDecoder(plan)))
        assert rows_of(decoder.decode(pa.array([payload]))) == [{"who": {"id": 5}}]


ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "customer": {"type": "object", "properties": {"id": {"type": "integer"}, "vip": {"type": "boolean"}}},
    },
}


class TestJson:
    @pytest.mark.parametrize("in_headers", [False, True])
    def test_all_values(self, client, in_headers):
        conf = {"schema.id.serializer": header_schema_id_serializer} if in_headers else {}
        serializer = JSONSerializer(json.dumps(ORDER_JSON), client, conf=conf)
        values = [
            {"id": 2**53 + 1, "price": 1.25, "note": 'é\n"', "tags": ["x", ""], "customer": {"id": 1, "vip": True}},
            {"id": -1, "price": 3, "note": None, "tags": [], "customer": {"id": 0, "vip": False}},
        ]
        headers: list[list[tuple[str, bytes]]] = [[], []]
        payloads = [serializer(value, context("value", each)) for value, each in zip(values, headers, strict=True)]
        reader = JSONDeserializer(json.dumps(ORDER_JSON), schema_registry_client=client)
        catalogue = catalogue_of(client)
        column = pa.array(headers, HEADERS)
        found = detect_format(pa.array(payloads), catalogue, column)
        assert present(found.plan).format is Format.JSON
        assert present(found.plan).framing is Framing.CONFLUENT
        decoded = rows_of(PayloadDecoder(present(found.plan)).decode(pa.array(payloads), column))
        assert decoded == [
            reader(payload, context("value", each)) for payload, each in zip(payloads, headers, strict=True)
        ]


def test_the_catalogue_has_the_mocks_guids(client):
    client.register_schema("s", Schema('"string"', "AVRO"))
    guid = client.get_version("s", 1).guid
    assert present(catalogue_of(client).by_guid(uuid.UUID(guid))).text == '"string"'
