"""The schema registry beside the broker: what its clients see, and what `_schemas` has afterwards."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address, WebAddress
from duralog.broker.security.web_users import WebUsers
from duralog.format.record import Record
from duralog.schemas.compatibility import work
from tests.support.broker.registry_client import RegistryClient, record

LOOPBACK = Address("127.0.0.1", 0)


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_page_of_another_site_registers_nothing(client: RegistryClient, headers: dict[str, str]) -> None:
    """Browsers send such a request without asking first: its body is plain text."""
    body = json.dumps({"schema": json.dumps(record(("a", "int")))}).encode()
    headers = {**headers, "Content-Type": "text/plain"}
    status, _ = client.ask("POST", "/subjects/forged/versions", body, headers)
    assert status == 403
    assert "forged" not in client.get("/subjects")


def test_versions_ids_and_lookups(client: RegistryClient) -> None:
    first = record(("a", "int"), name="Order")
    second = record(("a", "long"), ("b", "string", ""), name="Order")
    status, made = client.register("orders-value", first)
    assert (status, made["version"]) == (200, 1)
    assert client.register("orders-value", json.dumps(first, indent=4)) == (status, made), "white space has no meaning"
    status, again = client.register("orders-value", second)
    assert (status, again["version"], again["id"]) == (200, 2, made["id"] + 1)
    # The same schema has one id everywhere.
    assert client.register("copies-value", first)[1]["id"] == made["id"]
    assert client.get("/subjects/orders-value/versions") == [1, 2]
    latest = client.get("/subjects/orders-value/versions/latest")
    assert (latest["subject"], latest["version"], json.loads(latest["schema"])) == ("orders-value", 2, second)
    assert json.loads(client.get(f"/schemas/ids/{made['id']}")["schema"]) == first
    assert client.get(f"/schemas/ids/{made['id']}/schema") == first
    assert client.get(f"/schemas/ids/{made['id']}/subjects") == ["copies-value", "orders-value"]
    assert client.get(f"/schemas/guids/{made['guid']}")["schema"] == json.dumps(first)
    status, found = client.ask("POST", "/subjects/orders-value", {"schema": json.dumps(first)})
    assert (status, found["version"], found["id"]) == (200, 1, made["id"])
    assert {"subject": "orders-value", "version": 1} in client.get(f"/schemas/ids/{made['id']}/versions")


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/absent/versions", None, 40401),
        ("GET", "/subjects/errors/versions/9", None, 40402),
        ("GET", "/subjects/errors/versions/0", None, 42202),
        ("GET", "/subjects/errors/versions/x", None, 42202),
        ("GET", "/schemas/ids/99999", None, 40403),
        ("GET", "/schemas/guids/none", None, 40403),
        ("GET", "/config/errors", None, 40408),
        ("GET", "/mode/errors", None, 40409),
        ("POST", "/subjects/errors", {"schema": '"string"'}, 40403),
        ("POST", "/subjects/errors/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/errors/versions", {"schema": '{"type": "nonsense"}'}, 42201),
        ("POST", "/subjects/errors/versions", {"schema": 7}, 42201),
        ("POST", "/subjects/errors/versions", {"schema": "{}", "schemaType": "XML"}, 42201),
        ("POST", "/subjects/errors/versions", {"schema": '"int"', "id": 7}, 42205),
        ("POST", "/subjects/errors/versions", {"schema": '"string"'}, 409),
        ("POST", "/subjects/errors/versions", {"schema": '"long"', "metadata": {"properties": {"a": "b"}}}, 42201),
        ("POST", "/subjects/errors/versions", {"schema": '"long"', "ruleSet": {"domainRules": [{}]}}, 42201),
        ("PUT", "/config", {"compatibility": "NONE", "defaultRuleSet": {"domainRules": [{}]}}, 422),
        ("PUT", "/config/errors", {"alias": "another"}, 422),
        ("POST", "/subjects/errors/versions", b"no JSON", 422),
        ("POST", "/subjects/errors/versions", [], 422),
        ("PUT", "/config", {"compatibility": "SOMEHOW"}, 42203),
        ("PUT", "/mode", {"mode": "SOMEHOW"}, 42204),
        ("DELETE", "/subjects/errors?permanent=true", None, 40405),
        ("DELETE", "/subjects/errors/versions/1?permanent=true", None, 40407),
        ("GET", "/nothing/here", None, 404),
        ("PUT", "/subjects", {}, 405),
    ],
)
def test_errors_have_the_codes_of_the_interface(
    client: RegistryClient, method: str, path: str, body: Any, code: int
) -> None:
    assert client.register("errors", '"long"')[0] == 200
    status, found = client.ask(method, path, body)
    assert found["error_code"] == code, found
    assert status == (code if code < 1000 else code // 100)
    assert found["message"]


def test_deleting_is_soft_first(client: RegistryClient) -> None:
    client.register("gone", '"int"')
    client.register("gone", '"long"')
    assert client.ask("DELETE", "/subjects/gone/versions/1") == (200, 1)
    assert client.ask("DELETE", "/subjects/gone/versions/1")[1]["error_code"] == 40406
    assert client.get("/subjects/gone/versions") == [2]
    assert client.get("/subjects/gone/versions?deleted=true") == [1, 2]
    assert client.ask("DELETE", "/subjects/gone/versions/1?permanent=true") == (200, 1)
    assert client.get("/subjects/gone/versions?deleted=true") == [2]
    assert client.ask("DELETE", "/subjects/gone") == (200, [2])
    assert client.ask("DELETE", "/subjects/gone")[1]["error_code"] == 40404
    assert "gone" not in client.get("/subjects")
    assert "gone" in client.get("/subjects?deleted=true")
    assert client.ask("DELETE", "/subjects/gone?permanent=true") == (200, [2])
    assert "gone" not in client.get("/subjects?deleted=true")


def test_what_others_refer_to_stays(client: RegistryClient) -> None:
    client.register("money", record(("cents", "long"), name="Money"))
    reference = {"name": "Money", "subject": "money", "version": 1}
    status, made = client.register("bills", record(("sum", "Money"), name="Bill"), references=[reference])
    assert status == 200, made
    assert client.get("/subjects/money/versions/1/referencedby") == [made["id"]]
    assert client.ask("DELETE", "/subjects/money")[1]["error_code"] == 42206
    missing = {**reference, "version": 9}
    status, found = client.register("bills", record(("sum", "Money"), name="Bill2"), references=[missing])
    assert (status, found["error_code"]) == (422, 42201)
    assert "money" in found["message"]


def test_compatibility_levels(client: RegistryClient) -> None:
    narrow, wide = record(("a", "int")), record(("a", "int"), ("b", "string"))
    client.register("levels", narrow)
    path = "/compatibility/subjects/levels/versions/latest?verbose=true"
    status, found = client.ask("POST", path, {"schema": json.dumps(wide)})
    assert (status, found["is_compatible"]) == (200, False)
    assert "/fields/b" in found["messages"][0]
    assert client.ask("PUT", "/config/levels", {"compatibility": "FORWARD"}) == (200, {"compatibility": "FORWARD"})
    assert client.get("/config/levels") == {"compatibilityLevel": "FORWARD"}
    assert client.register("levels", wide)[0] == 200
    assert client.ask("PUT", "/config/levels", {"compatibility": "full_transitive"})[0] == 200
    status, found = client.register("levels", record(("a", "int"), ("b", "string"), ("c", "int", 0)))
    assert (status, found["error_code"]) == (409, 409), "the first version still has no b"
    assert client.ask("DELETE", "/config/levels") == (200, {"compatibilityLevel": "FULL_TRANSITIVE"})
    assert client.get("/config/levels?defaultToGlobal=true") == client.get("/config")
    # Without versions, everything is compatible.
    assert client.ask("POST", "/compatibility/subjects/none/versions/latest", {"schema": '"int"'})[1] == {
        "is_compatible": True
    }


@pytest.mark.parametrize("body", [{}, {"compatibility": None}, {"compatibility": ""}, {"compatibility": ["FULL"]}])
def test_a_config_without_a_level_changes_nothing(client: RegistryClient, body: Any) -> None:
    """Of Python's None, the name is that of a level."""
    before = client.get("/config")
    status, found = client.ask("PUT", "/config", body)
    assert (status, found["error_code"], client.get("/config")) == (422, 42203, before)
    assert client.ask("PUT", "/config/named", {"compatibilityLevel": "FULL"}) == (200, {"compatibility": "FULL"})
    assert client.get("/config/named") == {"compatibilityLevel": "FULL"}


def test_read_only(client: RegistryClient) -> None:
    client.register("kept", '"int"')
    assert client.ask("PUT", "/mode/kept", {"mode": "READONLY"})[0] == 200
    for method, path, body in (
        ("PUT", "/config/kept", {"compatibility": "NONE"}),
        ("DELETE", "/subjects/kept/versions/1", None),
        ("POST", "/subjects/kept/versions", {"schema": '"long"'}),
    ):
        assert client.ask(method, path, body)[1]["error_code"] == 42205
    assert client.register("kept", '"int"')[0] == 200, "it is there"
    assert client.ask("PUT", "/mode/kept", {"mode": "READWRITE"})[0] == 200
    assert client.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})[0] == 200
    try:
        assert client.register("kept", '"long"')[1]["error_code"] == 42205, "whatever the subject has"
    finally:
        assert client.ask("DELETE", "/mode") == (200, {"mode": "READONLY_OVERRIDE"})


def test_the_same_schema_in_another_text(client: RegistryClient) -> None:
    """As Java's client writes what it has parsed."""
    text = '{"name": "shop.R", "fields": [{"type": {"type": "int"}, "name": "a"}], "type": "record"}'
    parsed = '{"type":"record","name":"R","namespace":"shop","fields":[{"name":"a","type":"int"}]}'
    made = client.register("texts", text)[1]
    assert client.register("texts", parsed)[1] == made
    assert client.ask("POST", "/subjects/texts", {"schema": parsed})[1]["id"] == made["id"]
    assert client.register("other-texts", parsed)[1]["id"] == made["id"]


def test_modes_and_an_import_with_ids(client: RegistryClient) -> None:
    assert client.ask("PUT", "/mode/imported", {"mode": "IMPORT"})[0] == 200
    status, made = client.register("imported", '"bytes"', id=70_000, version=5)
    assert (status, made["id"], made["version"]) == (200, 70_000, 5)
    assert client.register("imported", '"int"', id=70_000)[1]["error_code"] == 42207
    for version in (0, -2, 2**31, True, "1", 1.5):
        assert client.register("imported", '"float"', id=70_001, version=version)[1]["error_code"] == 42202
    # A context whose ids are used up: what cannot be kept is not acknowledged.
    assert client.ask("PUT", "/mode/:.full:imported", {"mode": "IMPORT"})[0] == 200
    assert client.register(":.full:imported", '"int"', id=2**31 - 1)[0] == 200
    assert client.register(":.full:next", '"long"')[1]["error_code"] == 50001
    assert client.ask("PUT", "/mode/imported", {"mode": "READONLY"})[0] == 200
    assert client.register("imported", '"double"')[1]["error_code"] == 42205
    assert client.ask("DELETE", "/subjects/imported")[1]["error_code"] == 42205
    assert client.get("/mode/imported") == {"mode": "READONLY"}
    assert client.ask("DELETE", "/mode/imported") == (200, {"mode": "READONLY"})
    assert client.get("/mode") == {"mode": "READWRITE"}


def test_contexts_have_their_own_ids(client: RegistryClient) -> None:
    client.register("plain", record(("a", "int"), name="Plain"))
    status, made = client.register(":.other:orders", record(("a", "int"), name="Other"))
    assert (status, made["id"]) == (200, 1)
    assert client.get("/contexts/:.other:/subjects") == [":.other:orders"]
    assert json.loads(client.get("/schemas/ids/1?subject=:.other:orders")["schema"])["name"] == "Other"
    assert client.get("/contexts/:.other:/subjects/orders/versions") == [1]
    assert ":.other:orders" in client.get("/subjects")
    assert ":.other:orders" in client.get("/subjects?subjectPrefix=:*:")
    assert ":.other:orders" not in client.get("/subjects?subjectPrefix=")
    assert client.get("/subjects?subjectPrefix=pla") == ["plain"]
    assert {".", ".other"} <= set(client.get("/contexts"))


def test_odd_names(client: RegistryClient) -> None:
    for name in ("with/slash", "with space", "ümlaut", "%41", "a?b"):
        assert client.register(name, '"int"')[0] == 200
        assert client.get(f"/subjects/{quote(name, safe='')}/versions") == [1]
        assert name in client.get("/subjects")
    status, found = client.register("x" * 1001, '"int"')
    assert (status, found["error_code"]) == (422, 42208)


def test_two_that_register_at_once_get_one_id(client: RegistryClient) -> None:
    schema = record(("same", "int"), name="Same")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.register("at-once", schema), range(8)))
    assert len({answer[1]["id"] for answer in answers}) == 1
    assert client.get("/subjects/at-once/versions") == [1]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda n: client.register(f"own-{n}", record((f"f{n}", "int"), name=f"N{n}")), range(8)))
    assert len({answer[1]["id"] for answer in made}) == 8


def test_too_much(client: RegistryClient) -> None:
    connection = http.client.HTTPConnection(client.address.host, client.address.port, timeout=60)
    connection.putrequest("POST", "/subjects/large/versions")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    nested = "[" * 100_000
    assert client.register("deep", nested)[1]["error_code"] == 42201
    deep: Any = "int"
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    assert client.register("deep", deep)[1]["error_code"] == 42201
    status, _ = client.ask("GET", "/subjects", headers={"Host": "evil.example"})
    assert status == 421


@pytest.mark.parametrize("begun", ["/* ", "\\'"])
def test_a_text_that_closes_nothing(client: RegistryClient, begun: str) -> None:
    """Hours, if each beginning were followed to the end of the text. Then no thread of the broker would run."""
    assert client.register("protobuf", 'syntax = "proto3"; message M { }', schemaType="PROTOBUF")[0] == 200
    body = {"schema": begun * 100_000, "schemaType": "PROTOBUF"}
    assert client.ask("POST", "/subjects/protobuf", body)[1]["error_code"] in (40403, 42201)
    assert client.ask("POST", "/subjects/protobuf/versions", body)[1]["error_code"] == 42201


def test_a_comparison_that_would_not_end(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes with 4**30 pairs of choices."""
    monkeypatch.setattr(work, "MAX_STEPS", 20_000)

    def choices(leaf: str) -> str:
        made: dict[str, Any] = {"d0": {"type": leaf}}
        for n in range(30):
            below = {"properties": {"a": {"$ref": f"#/$defs/d{n}"}}}
            made[f"d{n + 1}"] = {"anyOf": [below, {**below, "title": leaf}]}
        return json.dumps({"$defs": made, "$ref": "#/$defs/d30"})

    assert client.register("choices", choices("string"), schemaType="JSON")[0] == 200
    status, found = client.register("choices", choices("integer"), schemaType="JSON")
    assert status == 409
    assert "steps to compare" in found["message"]


def test_a_comparison_with_many_versions_has_one_limit(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users with the role `look` can ask for it."""
    monkeypatch.setattr(work, "MAX_STEPS", 2_000)

    def version(number: int) -> str:
        return json.dumps(record((f"f{number}", "int", 0)) | {"doc": "x" * 8_000})

    client.ask("PUT", "/config/many", {"compatibility": "NONE"})
    for number in range(10):
        assert client.register("many", version(number))[0] == 200
    client.ask("PUT", "/config/many", {"compatibility": "FULL"})
    latest = client.ask("POST", "/compatibility/subjects/many/versions", {"schema": version(10)})
    assert latest[1] == {"is_compatible": True}, "one version takes fewer steps"
    client.ask("PUT", "/config/many", {"compatibility": "FULL_TRANSITIVE"})
    status, found = client.register("many", version(10))
    assert status == 409
    assert "more than 8,000 steps to compare" in found["message"]


def test_unions_of_many_types_are_compared_by_name(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_STEPS", 20_000)

    def union(*order: int) -> str:
        return json.dumps([{"type": "fixed", "name": f"F{number}", "size": 1} for number in order])

    client.ask("PUT", "/config/union", {"compatibility": "FULL_TRANSITIVE"})
    for number in range(10):
        assert client.register("union", union(*range(number, 650), *range(number)))[0] == 200


def test_white_space_is_no_other_schema(client: RegistryClient) -> None:
    """One id has one text: a record that gives it another would be ignored, and the subject would not exist."""
    first = client.register("space-1", '{"type":"fixed","name":"Space","size":4}')[1]
    second = client.register("space-2", '{"type": "fixed", "name": "Space", "size": 4}')[1]
    assert (second["id"], second["schema"], second["guid"]) == (first["id"], first["schema"], first["guid"])
    assert client.get("/subjects/space-2/versions/1")["id"] == first["id"]
    status, again = client.ask("POST", "/subjects/space-2", {"schema": '{"type":"fixed", "name":"Space", "size":4}'})
    assert (status, again["version"]) == (200, 1)


def test_a_bad_schema_in_the_topic_keeps_no_other_from_being_registered(client: RegistryClient, broker: Broker) -> None:
    client.register("before", '"int"')
    value = {"subject": "no-json", "version": 1, "id": 998, "schemaType": "JSON", "schema": "{"}
    key = {"keytype": "SCHEMA", "subject": "no-json", "version": 1, "magic": 1}
    broker.store.partition("_schemas", 0).append(
        [Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())]
    )
    assert client.register("json", '{"type": "string"}', schemaType="JSON")[0] == 200
    for text, code in (("{", 200), ("", 42201), ("{}", 40403)):
        status, found = client.ask("POST", "/subjects/no-json", {"schema": text, "schemaType": "JSON"})
        assert found.get("error_code", status) == code, text
    client.ask("DELETE", "/subjects/no-json")
    client.ask("DELETE", "/subjects/no-json?permanent=true")


def test_half_of_a_surrogate_pair(client: RegistryClient, broker: Broker) -> None:
    half = b'{"schema": "{\\"type\\": \\"string\\", \\"doc\\": \\"\\ud800\\"}"}'
    for path in ("/subjects/half/versions", "/subjects/half", "/compatibility/subjects/half/versions"):
        assert client.ask("POST", path, half)[0] == 422
    # Another client of the broker can write such a record.
    client.register("before", '"int"')
    value = {"subject": "half", "version": 1, "id": 999, "schema": '{"type": "string", "doc": "\ud800"}'}
    key = {"keytype": "SCHEMA", "subject": "half", "version": 1, "magic": 1}
    record = Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())
    broker.store.partition("_schemas", 0).append([record])
    assert client.get("/schemas/ids/999")["schema"] == value["schema"]
    assert client.get("/schemas/ids/999/schema") == {"type": "string", "doc": "?"}
    assert client.ask("GET", "http://[/subjects", headers={"Host": str(client.address)})[0] == 404
    client.ask("DELETE", "/subjects/half")
    client.ask("DELETE", "/subjects/half?permanent=true")


def test_state_is_the_topic(tmp_path: Path) -> None:
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        client.register("kept", record(("a", "int")))
        client.register("soft", '"int"')
        client.ask("DELETE", "/subjects/soft")
        client.ask("PUT", "/config/kept", {"compatibility": "NONE"})
        client.ask("PUT", "/mode/other", {"mode": "READONLY"})
        log = broker.store.partition("_schemas", 0)
        records = [(json.loads(found.key or b""), json.loads(found.value or b"null")) for found in log.read(0)]
        assert broker.store.topic_config("_schemas").cleanup_policy == {"compact"}
        broker.stop()
    assert records[0][0] == {"keytype": "SCHEMA", "subject": "kept", "version": 1, "magic": 1}
    assert records[0][1].items() >= {"subject": "kept", "version": 1, "id": 1, "deleted": False}.items()
    assert records[2] == (
        {"keytype": "DELETE_SUBJECT", "subject": "soft", "magic": 0},
        {"subject": "soft", "version": 1},
    )
    assert records[3] == ({"keytype": "CONFIG", "subject": "kept", "magic": 0}, {"compatibilityLevel": "NONE"})
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        assert client.get("/subjects") == ["kept"]
        assert client.get("/subjects?deleted=true") == ["kept", "soft"]
        assert client.get("/config/kept") == {"compatibilityLevel": "NONE"}
        assert client.get("/mode/other") == {"mode": "READONLY"}
        # Records of another registry count as soon as they are there, and bad ones cost nothing else.
        key = {"keytype": "SCHEMA", "subject": "theirs", "version": 3, "magic": 1}
        value = {"subject": "theirs", "version": 3, "id": 9, "schema": '"long"', "deleted": False}
        made = [
            Record(key=b"nonsense", value=b""),
            Record(key=json.dumps(key).encode(), value=json.dumps(value).encode()),
        ]
        broker.store.partition("_schemas", 0).append(made)
        assert client.get("/subjects/theirs/versions") == [3]
        assert client.register("next", '"double"')[1]["id"] == 10
        broker.stop()


def test_users(tmp_path: Path) -> None:
    import hashlib

    users = tmp_path / "users"
    users.write_text(f"ci look token${hashlib.sha256(b'secret').hexdigest()}\n")
    users.chmod(0o600)
    place = WebAddress(LOOPBACK, users=WebUsers(str(users)))
    with Broker(None, schema_registry=place) as broker:
        client = RegistryClient(broker.start())
        bearer = {"Authorization": "Bearer secret"}
        assert client.ask("GET", "/subjects", headers=bearer) == (200, [])
        for method, path in (("POST", "/subjects/a/versions"), ("PUT", "/config"), ("DELETE", "/subjects/a")):
            connection = http.client.HTTPConnection(client.address.host, client.address.port, timeout=60)
            connection.request(method, path, b"{}", bearer)
            assert connection.getresponse().status == 403, path
            connection.close()
        # Subjects and contexts may have the names of steps.
        for path in ("/subjects/subjects", "/subjects/compatibility", "/contexts/compatibility/subjects/a"):
            found = client.ask("POST", f"{path}/versions", {"schema": '"int"'}, headers=bearer)
            assert found[1]["error_code"] == 403, path
        assert client.get_as(bearer, "/subjects?subjectPrefix=:*:") == []
        # A lookup does not change anything.
        assert client.ask("POST", "/subjects/a", {"schema": '"int"'}, headers=bearer)[1]["error_code"] == 40401
        connection = http.client.HTTPConnection(client.address.host, client.address.port, timeout=60)
        connection.request("GET", "/subjects")
        assert connection.getresponse().status == 401
        connection.close()
        broker.stop()


def test_serializers_of_confluent(broker: Broker) -> None:
    registry = pytest.importorskip("confluent_kafka.schema_registry")
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = registry.SchemaRegistryClient({"url": f"http://{RegistryClient(broker).address}"})
    place = SerializationContext("from-confluent", MessageField.VALUE)
    row = {"id": 7, "name": "Ünal"}
    schema = json.dumps(record(("id", "long"), ("name", "string"), name="Row"))
    payload = AvroSerializer(client, schema)(row, place)
    assert payload is not None
    assert payload[0] == 0
    assert AvroDeserializer(client)(payload, place) == row
    place = SerializationContext("json-from-confluent", MessageField.VALUE)
    of_json = json.dumps({"title": "Row", "type": "object", "properties": {"id": {"type": "integer"}}})
    payload = JSONSerializer(of_json, client)({"id": 7}, place)
    assert JSONDeserializer(of_json, schema_registry_client=client)(payload, place) == {"id": 7}
    assert client.get_latest_version("json-from-confluent-value").schema.schema_type == "JSON"


def test_protobuf_serializer_of_confluent(broker: Broker) -> None:
    pytest.importorskip("grpc_tools")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="shop", syntax="proto3")
    made = file.message_type.add(name="Row")
    made.field.add(name="id", number=1, type=3, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    row = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Row"))
    client = SchemaRegistryClient({"url": f"http://{RegistryClient(broker).address}"})
    place = SerializationContext("protobuf-from-confluent", MessageField.VALUE)
    payload = ProtobufSerializer(row, client, {"use.deprecated.format": False})(row(id=7), place)
    found = ProtobufDeserializer(row, {"use.deprecated.format": False}, client)(payload, place)
    assert found == row(id=7)
