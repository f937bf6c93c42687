"""The schema registry as confluent-kafka's client and serializers use it; and what they wrote, decoded by duralog.

Payloads are decoded twice: with the schemas that the registry's REST interface gives, and with those of `_schemas`.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duralog.broker.broker import Broker
from duralog.columnar.schema import HEADER_TYPE
from duralog.schemas import (
    DecoderPlan,
    Format,
    Framing,
    PayloadDecoder,
    RegistrySettings,
    SchemaCatalogue,
    detect_format,
    fetch_catalogue,
    fetch_ids,
    find_schema,
    read_schemas_topic,
)
from tests.support.schemas.presence import present

pytest.importorskip("authlib", reason="confluent-kafka's registry client needs it")

from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

HEADERS = pa.list_(pa.field("item", HEADER_TYPE))


@pytest.fixture
def url(broker: Broker) -> str:
    return f"http://{present(broker.schema_registry).address}"


@pytest.fixture
def client(url: str) -> Any:
    return SchemaRegistryClient({"url": url})


def schemas_topic(broker: Broker) -> SchemaCatalogue:
    found = read_schemas_topic((each.key, each.value) for each in broker.store.partition("_schemas", 0).read(0))
    assert found.problems == ()
    return found


def record(*fields: Any, name: str = "Order") -> str:
    made = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": made})


def value_of(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def decoded(catalogue: SchemaCatalogue, topic: str, payloads: list[Any], headers: list[Any] | None = None) -> list[Any]:
    column, with_headers = pa.array(payloads, pa.binary()), None if headers is None else pa.array(headers, HEADERS)
    plan = present(detect_format(column, catalogue, with_headers, topic=topic).plan)
    assert plan.framing is Framing.CONFLUENT
    found = PayloadDecoder(plan).decode(column, with_headers)
    assert found.reasons.null_count == len(payloads), found.reasons
    return list(found.values.to_pylist())


def test_a_schema_evolves(broker: Broker, url: str, client: Any) -> None:
    first, second = record(("id", "int")), record(("id", "long"), ("price", "double", 0.5))
    payloads = [AvroSerializer(client, first)({"id": 1}, value_of("evolving"))]
    older = fetch_catalogue(RegistrySettings(url=url))
    payloads.append(AvroSerializer(client, second)({"id": 2**40, "price": 2.0}, value_of("evolving")))
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(client, record(("id", "string")))({"id": ""}, value_of("evolving"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert "/fields/id" in str(refused.value)
    # The newest schema writes, though the application has the oldest.
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    payloads.append(AvroSerializer(client, first, conf=latest)({"id": 3}, value_of("evolving")))
    assert payloads[2][:5] == payloads[1][:5] != payloads[0][:5]
    rows = [{"id": 1, "price": 0.5}, {"id": 2**40, "price": 2.0}, {"id": 3, "price": 0.5}]
    reader = AvroDeserializer(client, second)
    assert [reader(each, value_of("evolving")) for each in payloads] == rows
    for catalogue in (fetch_catalogue(RegistrySettings(url=url)), schemas_topic(broker)):
        assert decoded(catalogue, "evolving", payloads) == rows
    # A reader that was planned before the second version asks for its id.
    number = int.from_bytes(payloads[1][1:5], "big")
    newer = fetch_ids(RegistrySettings(url=url), [number], older)
    plan = DecoderPlan(format=Format.AVRO, framing=Framing.CONFLUENT, reader=find_schema(older, "evolving-value"))
    assert PayloadDecoder(plan).decode(pa.array(payloads)).reasons[1].as_py() == f"unknown schema id {number}"
    plan = DecoderPlan(**{**vars(plan), "reader": find_schema(newer, f"id:{number}"), "catalogue": newer})
    assert PayloadDecoder(plan).decode(pa.array(payloads)).values.to_pylist() == rows


def test_guids_in_headers(broker: Broker, url: str, client: Any) -> None:
    serializer = AvroSerializer(
        client, record(("id", "int"), name="Guided"), conf={"schema.id.serializer": header_schema_id_serializer}
    )
    headers: list[Any] = [[], []]
    payloads = [serializer({"id": n}, value_of("guided", headers[n])) for n in range(2)]
    assert [len(each[0][1]) for each in headers] == [17, 17]
    for catalogue in (fetch_catalogue(RegistrySettings(url=url)), schemas_topic(broker)):
        assert decoded(catalogue, "guided", payloads, headers) == [{"id": 0}, {"id": 1}]


def test_references(broker: Broker, url: str, client: Any) -> None:
    money = record(("cents", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}), name="Money")
    client.register_schema("money", Schema(money, "AVRO"))
    bill = Schema(record(("sum", "shop.Money"), name="Bill"), "AVRO", [SchemaReference("shop.Money", "money", 1)])
    payload = AvroSerializer(client, bill)({"sum": {"cents": Decimal("1.25")}}, value_of("bills"))
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    client.register_schema("place", Schema(json.dumps(place), "JSON"))
    person = {"type": "object", "title": "Person", "properties": {"home": {"$ref": "place.json"}}}
    schema = Schema(json.dumps(person), "JSON", [SchemaReference("place.json", "place", 1)])
    text = JSONSerializer(schema, client)({"home": {"city": "Ulm"}}, value_of("people"))
    for catalogue in (fetch_catalogue(RegistrySettings(url=url)), schemas_topic(broker)):
        assert decoded(catalogue, "bills", [payload]) == [{"sum": {"cents": Decimal("1.25")}}]
        assert decoded(catalogue, "people", [text]) == [{"home": {"city": "Ulm"}}]
    assert client.get_referenced_by("money", 1) == [client.get_latest_version("bills-value").schema_id]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject("money")
    assert (refused.value.http_status_code, refused.value.error_code) == (422, 42206)


def test_protobuf_imports(broker: Broker, url: str, client: Any) -> None:
    pytest.importorskip("grpc_tools")
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    part = descriptor_pb2.FileDescriptorProto(name="shop/part.proto", package="shop", syntax="proto3")
    part.message_type.add(name="Part").field.add(name="name", number=1, type=9, label=1)
    pool.Add(part)
    whole = descriptor_pb2.FileDescriptorProto(name="shop/whole.proto", package="shop", syntax="proto3")
    whole.dependency.extend(["shop/part.proto", "google/protobuf/timestamp.proto"])
    made = whole.message_type.add(name="Unused")
    made = whole.message_type.add(name="Whole")
    made.field.add(name="parts", number=1, type=11, label=3, type_name=".shop.Part")
    made.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.Add(whole)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Whole"))
    row = message(parts=[{"name": "wheel"}, {"name": "Ünit"}], at={"seconds": 5})
    payload = present(ProtobufSerializer(message, client, {"use.deprecated.format": False}))(row, value_of("wholes"))
    # The second message of its file; what it imports was registered, too.
    assert payload[5:7] == b"\x02\x02"
    assert "shop/part.proto" in client.get_subjects()
    for catalogue in (fetch_catalogue(RegistrySettings(url=url)), schemas_topic(broker)):
        plan = DecoderPlan(
            format=Format.PROTOBUF,
            framing=Framing.CONFLUENT,
            reader=find_schema(catalogue, "wholes-value"),
            catalogue=catalogue,
            message="shop.Whole",
        )
        found = PayloadDecoder(plan).decode(pa.array([payload]))
        assert found.reasons.null_count == 1, found.reasons
        [value] = found.values.to_pylist()
        assert [each["name"] for each in value["parts"]] == ["wheel", "Ünit"]
        assert value["at"].timestamp() == 5


def test_what_is_deleted(client: Any) -> None:
    first, second = Schema('"int"', "AVRO"), Schema('"long"', "AVRO")
    number = client.register_schema("gone", first)
    client.register_schema("gone", second)
    assert client.delete_version("gone", 1) == 1
    assert client.get_versions("gone") == [2]
    assert client.delete_subject("gone") == [2]
    for code, ask in (
        (40401, lambda: client.get_versions("gone")),
        (40401, lambda: client.lookup_schema("gone", first)),
        (40404, lambda: client.delete_subject("gone")),
        (40402, lambda: client.get_version("gone-not", 9)),
    ):
        client.register_schema("gone-not", first)
        client.clear_caches()
        with pytest.raises(SchemaRegistryError) as refused:
            ask()
        assert (refused.value.http_status_code, refused.value.error_code) == (404, code)
    # Records that were written with the id can still be read.
    assert client.get_schema(number).schema_str == '"int"'
    assert client.delete_subject("gone", permanent=True) == [1, 2]


def test_levels_and_modes(client: Any) -> None:
    client.register_schema("levels", Schema('"int"', "AVRO"))
    assert client.set_compatibility("levels", "FORWARD") == {"compatibility": "FORWARD"}
    assert client.get_compatibility("levels") == "FORWARD"
    assert not client.test_compatibility("levels", Schema('"long"', "AVRO"))
    assert client.delete_config("levels").compatibility_level.value == "FORWARD"
    assert client.update_mode("levels", "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("levels", Schema('"long"', "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (422, 42205)
    assert client.delete_mode("levels") == "READONLY"
    assert client.get_global_mode() == "READWRITE"


def test_metadata_is_refused(client: Any) -> None:
    """It would be lost, and rules with it: a serializer would then write what it was to encrypt."""
    metadata = Metadata(tags=None, properties=MetadataProperties({"owner": "me"}), sensitive=None)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("described", Schema('"int"', "AVRO", metadata=metadata))
    assert refused.value.error_code == 42201
    assert "described" not in client.get_subjects()


def test_contexts(client: Any) -> None:
    assert client.register_schema(":.staging:orders", Schema(record(("id", "int")), "AVRO")) == 1
    assert ":.staging:orders" in client.get_subjects()
    assert ".staging" in client.get_contexts()
    assert client.set_compatibility(":.staging:", "NONE") == {"compatibility": "NONE"}
    assert client.get_compatibility(":.staging:") == "NONE"
    client.register_schema(":.staging:orders", Schema(record(("id", "string")), "AVRO"))
    assert client.update_mode(":.staging:", "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(":.staging:payments", Schema('"int"', "AVRO"))
    assert refused.value.error_code == 42205
    assert client.delete_mode(":.staging:") == "READONLY"
    assert client.delete_config(":.staging:").compatibility_level.value == "NONE"
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_config(":.staging:")
    assert refused.value.error_code == 40401


def test_the_latest_version_of_a_reference(client: Any) -> None:
    client.register_schema("cents", Schema(record(("cents", "long"), name="Cents"), "AVRO"))
    latest = [SchemaReference("shop.Cents", "cents", -1)]
    schema = Schema(record(("sum", "shop.Cents"), name="Sum"), "AVRO", latest)
    number = client.register_schema("sums", schema)
    assert client.get_latest_version("sums").schema.references == [SchemaReference("shop.Cents", "cents", 1)]
    assert client.lookup_schema("sums", schema).schema_id == number
    assert client.get_referenced_by("cents", 1) == [number]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version("cents", 1)
    assert refused.value.error_code == 42206


def test_an_id_that_was_deleted_for_good(client: Any) -> None:
    number = client.register_schema("short-lived", Schema(record(("id", "int"), name="ShortLived"), "AVRO"))
    client.delete_subject("short-lived")
    assert client.get_schema(number).schema_str
    client.delete_subject("short-lived", permanent=True)
    client.clear_caches()
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_schema(number)
    assert refused.value.error_code == 40403


def test_a_bad_default_is_refused_before_a_record_is_sent(client: Any) -> None:
    bad = record(("id", ["long", "null"], None), name="BadDefault")
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("bad-default", Schema(bad, "AVRO"))
    assert refused.value.error_code == 42201
