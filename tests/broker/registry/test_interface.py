"""References, contexts, configs, deletion and new schemas, as Confluent documents the interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from duralog import __version__
from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address
from duralog.format.record import Record
from tests.support.broker.registry_client import RegistryClient, record

LOOPBACK = Address("127.0.0.1", 0)


def test_a_reference_to_the_latest_version_is_one_to_that_version(client: RegistryClient) -> None:
    client.register("latest-money", record(("cents", "long"), name="Money"))
    bill = record(("sum", "Money"), name="Bill")
    latest = {"name": "Money", "subject": "latest-money", "version": -1}
    status, made = client.register("latest-bill", bill, references=[latest])
    assert (status, made["references"]) == (200, [{**latest, "version": 1}])
    assert client.get("/subjects/latest-money/versions/1/referencedby") == [made["id"]]
    assert client.ask("DELETE", "/subjects/latest-money")[1]["error_code"] == 42206
    assert client.ask("DELETE", "/subjects/latest-money/versions/1")[1]["error_code"] == 42206
    body = {"schema": json.dumps(bill), "references": [latest]}
    assert client.ask("POST", "/subjects/latest-bill", body)[1]["version"] == 1
    # With another latest version, it is another schema.
    client.register("latest-money", record(("cents", "long"), ("of", "string", "EUR"), name="Money"))
    assert client.get("/subjects/latest-bill/versions/1")["references"] == [{**latest, "version": 1}]
    assert client.ask("POST", "/subjects/latest-bill", body)[1]["error_code"] == 40403
    missing = {**latest, "subject": "latest-none"}
    assert client.register("latest-bill", bill, references=[missing])[1]["error_code"] == 42201


def test_schemas_that_are_soft_deleted_still_refer(client: RegistryClient) -> None:
    client.register("part", record(("a", "int"), name="Part"))
    reference = {"name": "Part", "subject": "part", "version": 1}
    made = client.register("whole", record(("part", "Part"), name="Whole"), references=[reference])[1]
    assert client.ask("DELETE", "/subjects/whole") == (200, [1])
    assert client.get("/subjects/part/versions/1/referencedby") == [made["id"]]
    assert client.ask("DELETE", "/subjects/part")[1]["error_code"] == 42206
    assert client.ask("DELETE", "/subjects/whole?permanent=true") == (200, [1])
    assert client.get("/subjects/part/versions/1/referencedby") == []
    assert client.ask("DELETE", "/subjects/part") == (200, [1])
    assert client.get("/subjects/part/versions/1/referencedby") == []


def test_versions_that_refer_to_one_another_are_deleted_together(client: RegistryClient) -> None:
    client.ask("PUT", "/config/own", {"compatibility": "NONE"})
    client.register("own", record(("a", "int"), name="First"))
    reference = {"name": "First", "subject": "own", "version": 1}
    assert client.register("own", record(("first", "First"), name="Next"), references=[reference])[0] == 200
    assert client.ask("DELETE", "/subjects/own/versions/1")[1]["error_code"] == 42206
    assert client.ask("DELETE", "/subjects/own") == (200, [1, 2])
    assert client.ask("DELETE", "/subjects/own?permanent=true") == (200, [1, 2])


@pytest.mark.parametrize("path", ["/{what}/:.place:", "/contexts/:.place:/{what}"])
def test_configs_of_a_context(client: RegistryClient, path: str) -> None:
    config, mode = path.format(what="config"), path.format(what="mode")
    assert client.register(":.place:a", '"int"')[0] == 200
    assert client.ask("GET", config)[1]["error_code"] == 40408
    assert client.ask("PUT", config, {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert client.get("/config/:.place:") == {"compatibilityLevel": "NONE"}
    assert client.get("/config/:.place:a?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}
    assert client.get("/config/a?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert client.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert client.register(":.place:a", '"string"')[0] == 200
    # A subject's own comes first.
    client.ask("PUT", "/config/:.place:a", {"compatibility": "FULL"})
    assert client.register(":.place:a", '"boolean"')[1]["error_code"] == 409
    assert client.ask("DELETE", "/config/:.place:a")[0] == 200
    assert client.ask("DELETE", config) == (200, {"compatibilityLevel": "NONE"})
    assert client.register(":.place:a", '"boolean"')[1]["error_code"] == 409

    assert client.ask("PUT", mode, {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert client.register(":.place:new", '"int"')[1]["error_code"] == 42205
    assert client.ask("DELETE", "/subjects/:.place:a")[1]["error_code"] == 42205
    assert client.register("elsewhere", '"int"')[0] == 200
    client.ask("PUT", "/mode/:.place:new", {"mode": "READWRITE"})
    assert client.register(":.place:new", '"int"')[0] == 200
    client.ask("PUT", mode, {"mode": "READONLY_OVERRIDE"})
    assert client.register(":.place:new", '"long"')[1]["error_code"] == 42205
    assert client.ask("DELETE", mode) == (200, {"mode": "READONLY_OVERRIDE"})
    assert client.ask("DELETE", mode)[1]["error_code"] == 40401
    assert client.register(":.place:", '"int"')[1]["error_code"] == 42208
    for subject in (":.place:a", ":.place:new"):
        assert client.ask("DELETE", f"/subjects/{subject}")[0] == 200
        assert client.ask("DELETE", f"/subjects/{subject}?permanent=true")[0] == 200


def test_a_context_of_imports(client: RegistryClient) -> None:
    assert client.register(":.imports:there", '"int"')[0] == 200
    assert client.ask("PUT", "/mode/:.imports:", {"mode": "IMPORT"})[1]["error_code"] == 42205
    assert client.ask("PUT", "/mode/:.imports:?force=true", {"mode": "IMPORT"})[0] == 200
    status, made = client.register(":.imports:a", '"long"', id=77, version=3)
    assert (status, made["id"], made["version"]) == (200, 77, 3)
    # As often as one likes, and each version of the other registry.
    assert client.register(":.imports:a", '"long"', id=77, version=3) == (status, made)
    assert client.register(":.imports:a", '"long"', id=77, version=5)[1]["version"] == 5
    assert client.get("/subjects/:.imports:a/versions") == [3, 5]


BAD_DEFAULTS = [
    ("int", "x"),
    ("int", 2**31),
    ("int", True),
    ("string", 1),
    ("null", "null"),
    ("boolean", 0),
    ("double", "1"),
    ("bytes", 1),
    (["long", "null"], None),
    (["null", "long"], 1),
    ({"type": "array", "items": "int"}, {}),
    ({"type": "array", "items": "int"}, [1, "2"]),
    ({"type": "map", "values": "int"}, {"a": "b"}),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ({"type": "fixed", "name": "F", "size": 2}, "abc"),
    (record(("b", "int"), name="Inner"), {}),
    (record(("b", "int"), name="Inner"), {"b": "x"}),
    ({"type": "array", "items": record(("b", "int", "x"), name="Inner")}, []),
]


@pytest.mark.parametrize(("type_", "default"), BAD_DEFAULTS)
def test_a_default_that_is_not_a_value_of_its_type(client: RegistryClient, type_: Any, default: Any) -> None:
    status, found = client.register("defaults", record(("a", type_, default)))
    assert (status, found.get("error_code")) == (422, 42201), found
    assert "is not a value of its type" in found["message"]
    body = {"schema": json.dumps(record(("a", type_, default)))}
    assert client.ask("POST", "/compatibility/subjects/defaults/versions", body)[1]["error_code"] == 42201
    assert "defaults" not in client.get("/subjects")


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        (["null", "long"], None),
        (["long", "null"], 1),
        ("double", 1),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, ""),
        ({"type": "int", "logicalType": "time-millis"}, -1),
        (record(("b", "int", 1), ("c", ["null", "string"], None), name="Inner"), {}),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, {"a": [1]}),
    ],
)
def test_a_default_that_is_a_value_of_its_type(client: RegistryClient, type_: Any, default: Any) -> None:
    client.ask("PUT", "/config/good-defaults", {"compatibility": "NONE"})
    assert client.register("good-defaults", record(("a", type_, default)))[0] == 200


def test_a_default_of_records_in_records_is_checked_once(client: RegistryClient) -> None:
    """As bytes, it would be 2**40 of them."""
    made = record(("x", "int", 1), name="R40")
    for number in reversed(range(40)):
        made = record(("a", made, {}), ("b", f"R{number + 1}", {}), name=f"R{number}")
    assert client.register("nested-defaults", made)[0] == 200


def test_stored_schemas_with_bad_defaults_are_served(tmp_path: Path) -> None:
    """Registered elsewhere, or before they were checked."""
    bad = json.dumps(record(("a", "int", "x")))
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        client.ask("PUT", "/mode/stored", {"mode": "IMPORT"})
        assert client.register("stored", bad, id=5, version=1)[0] == 200
        client.ask("PUT", "/mode/stored", {"mode": "READWRITE"})
        assert client.get("/schemas/ids/5")["schema"] == bad
        assert client.ask("POST", "/subjects/stored", {"schema": bad})[1]["id"] == 5
        assert client.register("stored", bad)[1]["id"] == 5
        assert client.register("stored", record(("a", "int"), ("b", "int", 1)))[0] == 200


def test_an_id_that_was_deleted_for_good(tmp_path: Path) -> None:
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        client.register("kept", '"int"')
        made = client.register("gone", '"long"')[1]
        client.register("gone", '"double"')
        for _ in range(2):
            # The latest that lives.
            assert client.ask("DELETE", "/subjects/gone/versions/latest")[0] == 200
        assert client.get(f"/schemas/ids/{made['id']}")["schema"] == '"long"', "it can be restored"
        assert client.ask("DELETE", "/subjects/gone/versions/latest")[1]["error_code"] == 40406
        assert client.ask("DELETE", "/subjects/gone?permanent=true") == (200, [1, 2])
        for path in (f"ids/{made['id']}", f"ids/{made['id']}/versions", f"guids/{made['guid']}"):
            assert client.ask("GET", f"/schemas/{path}")[1]["error_code"] == 40403
        broker.stop()
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        assert client.ask("GET", f"/schemas/ids/{made['id']}")[1]["error_code"] == 40403
        assert client.register("next", '"bytes"')[1]["id"] == 4, "records with the ids 2 and 3 may exist"
        # One that is used elsewhere stays.
        client.register("also", '"int"')
        client.ask("DELETE", "/subjects/kept")
        client.ask("DELETE", "/subjects/kept?permanent=true")
        assert client.get("/schemas/ids/1")["schema"] == '"int"'
        assert client.get("/schemas/ids/1/subjects") == ["also"]


def test_a_subject_of_many_versions_is_deleted_for_good(client: RegistryClient, broker: Broker) -> None:
    """Its tombstones are more than a batch may have."""
    name = "many-" + "x" * 900
    client.register("before", '"int"')
    for number in range(1, 1_501):
        key = {"keytype": "SCHEMA", "subject": name, "version": number, "magic": 1}
        value = {"subject": name, "version": number, "id": 9_000, "schema": '"string"', "deleted": True}
        record = Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())
        broker.store.partition("_schemas", 0).append([record])
    assert client.ask("DELETE", f"/subjects/{name}?permanent=true") == (200, list(range(1, 1_501)))
    assert name not in client.get("/subjects?deleted=true")


def test_an_invalid_schema_is_not_looked_up(client: RegistryClient) -> None:
    client.register("valid", '"int"')
    for subject in ("valid", "absent"):
        assert client.ask("POST", f"/subjects/{subject}", {"schema": "{"})[1]["error_code"] == 42201
    assert client.ask("POST", "/subjects/absent", {"schema": '"int"'})[1]["error_code"] == 40401


@pytest.mark.parametrize("what", ["config", "mode"])
def test_what_is_not_set_cannot_be_reset(client: RegistryClient, what: str) -> None:
    assert client.ask("DELETE", f"/{what}/absent")[1]["error_code"] == 40401
    assert client.ask("DELETE", f"/{what}")[0] == 200


def test_schemas_are_normalized_by_config(client: RegistryClient) -> None:
    of_json = {"schema": '{"type": "object", "title": "T"}', "schemaType": "JSON"}
    other = {**of_json, "schema": '{"title": "T", "type": "object"}'}
    answer = {"compatibility": "BACKWARD", "normalize": True}
    assert client.ask("PUT", "/config/normal", {"normalize": True}) == (200, answer)
    assert client.get("/config/normal") == {"compatibilityLevel": "BACKWARD", "normalize": True}
    status, made = client.ask("POST", "/subjects/normal/versions", of_json)
    assert (status, made["schema"]) == (200, '{"title":"T","type":"object"}')
    assert client.ask("POST", "/subjects/normal/versions", other) == (200, made)
    assert client.ask("POST", "/subjects/normal", other)[1]["version"] == 1
    answer = {"compatibility": "NONE", "normalize": True}
    assert client.ask("PUT", "/config/normal", {"compatibility": "NONE"}) == (200, answer)
    assert client.ask("PUT", "/config/normal", {"normalize": "yes"})[1]["error_code"] == 422
    assert client.ask("DELETE", "/config/normal") == (200, {"compatibilityLevel": "NONE"})
    assert client.ask("POST", "/subjects/normal", of_json)[1]["error_code"] == 40403


def test_a_config_of_normalize_is_kept(tmp_path: Path) -> None:
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        client.ask("PUT", "/config/:.c:", {"compatibility": "FULL", "normalize": True})
        broker.stop()
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        assert client.get("/config/:.c:") == {"compatibilityLevel": "FULL", "normalize": True}
        assert client.get("/config/:.c:a?defaultToGlobal=true") == {"compatibilityLevel": "FULL", "normalize": True}


def test_levels_and_modes_of_other_registries(client: RegistryClient, broker: Broker) -> None:
    """They have more of them with time."""
    for subject in ("theirs", "ours"):
        client.register(subject, '"int"')
    for keytype, value in (("CONFIG", {"compatibilityLevel": "SOMEHOW"}), ("MODE", {"mode": "SOMEHOW"})):
        key = {"keytype": keytype, "subject": "theirs", "magic": 0}
        made = Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())
        broker.store.partition("_schemas", 0).append([made])
    assert client.get("/config/theirs?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert client.get("/mode/theirs") == {"mode": "READONLY"}
    assert client.register("theirs", '"long"')[1]["error_code"] == 42205
    assert client.register("ours", '"long"')[0] == 200
    assert client.ask("DELETE", "/mode/theirs")[0] == 200
    assert client.register("theirs", '"long"')[0] == 200


def test_what_the_registry_is(client: RegistryClient, broker: Broker) -> None:
    clusters = {"kafka-cluster": broker.store.cluster_id, "schema-registry-cluster": "schema-registry"}
    assert client.get("/v1/metadata/id") == {"id": "", "scope": {"path": [], "clusters": clusters}}
    assert client.get("/v1/metadata/version")["version"] == __version__
