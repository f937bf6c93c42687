"""`duralog produce` with schemas: into a directory and through a broker, read back by consume and confluent-kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import duralog
from duralog.command_line import app
from duralog.testing import TestBroker, running_broker
from tests.support.typed_log import FIRST, SECOND, write_typed_log

VALUES: list[dict[str, Any]] = [{"id": 1, "customer": None}, {"id": 2**40, "customer": {"name": "größe"}}]
LINES = "\n".join(json.dumps(value) for value in VALUES)


def run(*arguments: object, code: int = 0, given: str | None = None) -> Result:
    found = CliRunner().invoke(app, [str(each) for each in arguments], input=given)
    assert found.exit_code == code, found.output
    return found


def rows(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("consume", *arguments, "--json").stdout.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_typed_log(tmp_path)
    with duralog.open(tmp_path) as store:
        store.create_topic("copy", 1)
    return tmp_path


@pytest.mark.parametrize("schema", ["orders-value", "orders-value:2", "id:4"])
def test_ids_come_from_the_directory(path: Path, schema: str) -> None:
    found = run("produce", path, "-t", "copy", "--value-schema", schema, given=LINES)
    assert "copy: values are avro by schema id 4" in found.stderr
    written = rows(path, "-t", "copy", "--value-format", "auto")
    assert [row["value"] for row in written] == VALUES
    assert written[0]["value_schema"] == "orders-value version 2 (id 4)"


def test_the_subject_of_the_topic_is_meant_by_itself(path: Path, tmp_path: Path) -> None:
    before = len(rows(path, "-t", "orders"))
    run("produce", path, "-t", "orders", "--value-format", "avro", "--value", '{"id": 7}')
    # A file, and text, with the text of a version.
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(FIRST, indent=2))
    run("produce", path, "-t", "orders", "--value-schema", file, "--value", '{"id": 8}')
    run(
        "produce", path, "-t", "orders", "--value-format", "avro", "--value-schema", file.read_text(), "-v", '{"id": 9}'
    )
    written = rows(path, "-t", "orders", "--value-format", "avro")[before:]
    assert [row["value"]["id"] for row in written] == [7, 8, 9]
    assert [row["value_schema"][-6:] for row in written] == ["(id 4)", "(id 3)", "(id 3)"]
    file.write_text('{"type": "record", "name": "New", "fields": []}')
    found = run("produce", path, "-t", "orders", "--value-schema", file, "--value", "{}", code=1)
    assert "is not a version of subject 'orders-value' in the topic _schemas" in found.stderr


def test_without_ids(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SECOND))
    run("produce", path, "-t", "copy", "--value-schema", file, "--framing", "none", "--value", '{"id": 1}')
    with duralog.open(path, read_only=True) as store:
        assert [record.value for record in store.partition("copy", 0).read(0)] == [b"\x02\x00"]


def test_a_wrong_line_is_named(path: Path) -> None:
    wrong = LINES + '\n{"id": 3, "customer": {"name": 5}}\n{"id": 4}\n'
    found = run("produce", path, "-t", "copy", "--value-schema", "orders-value", given=wrong, code=1)
    assert "line 3: value: field customer.name: expected string, found 5" in found.stderr
    assert len(rows(path, "-t", "copy")) == 2
    found = run("produce", path, "-t", "copy", "--value-schema", "orders-value", given="oops\n", code=1)
    assert "line 1: value: not JSON" in found.stderr


def test_a_decoded_topic_is_copied_to_the_byte(path: Path) -> None:
    source = run("consume", path, "-t", "bad", "-o", "1095", "--value-format", "auto", "--json").stdout
    run("produce", path, "-t", "copy", "--from-json", "--value-schema", "orders-value", given=source)
    source = run("consume", path, "-t", "orders", "-o", "10", "--value-format", "auto", "--json").stdout
    run("produce", path, "-t", "copy", "--from-json", "--value-schema", "orders-value", given=source)
    with duralog.open(path, read_only=True) as store:
        expected = [record.value for record in store.partition("bad", 0).read(1095)]
        assert [record.value for record in store.partition("copy", 0).read(0)] == [*expected, None]


def test_keys_and_plain_formats(path: Path) -> None:
    run(
        *("produce", path, "-t", "copy", "--key-format", "long", "--key-separator", ":"),
        *("--value-format", "json"),
        given='7:{"a": 1}\n',
    )
    run("produce", path, "-t", "copy", "--key-schema", "orders-value", "--key", '{"id": 1}', "--tombstone")
    with duralog.open(path, read_only=True) as store:
        first, second = store.partition("copy", 0).read(0)
    assert (first.key, first.value) == (b"\0\0\0\0\0\0\0\7", b'{"a":1}')
    assert (second.key, second.value) == (b"\0\0\0\0\4\2\0", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--framing", "none"], "give --value-schema"),
        (["--value-schema", "orders-value", "--no-register"], "needs --schema-registry"),
    ],
)
def test_wrong_options(path: Path, options: list[str], message: str) -> None:
    found = run("produce", path, "-t", "copy", "--value", "{}", *options, code=2)
    assert message in " ".join(found.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--value-format", "debezium"], "not written in the format 'debezium'"),
        (["--value-format", "long", "--value-schema", "orders-value"], "have no schema"),
        (["--value-format", "json", "--value-schema", "orders-value"], "format json cannot use it"),
        (["--value-schema", '{"type": "int"}'], "give the format, too"),
        (["--value-schema", "nothing"], "no subject 'nothing'"),
        (["--value-schema", "orders-value", "--framing", "tcp"], "expected confluent or none"),
    ],
)
def test_schemas_that_cannot_be_used(path: Path, options: list[str], message: str) -> None:
    assert message in run("produce", path, "-t", "copy", "--value", "{}", *options, code=1).stderr


# Through a broker, with a registry


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[TestBroker, str]]:
    with running_broker() as broker, broker.schema_registry() as url:
        yield broker, url


PROTO = """
syntax = "proto3";
message Order { int64 id = 1; Customer customer = 2; }
message Customer { string name = 1; }
"""
JSON_SCHEMA = {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def deserializer(format_: str, url: str) -> Any:
    registry = pytest.importorskip("confluent_kafka.schema_registry")
    client = registry.SchemaRegistryClient({"url": url})
    if format_ == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        return AvroDeserializer(client)
    if format_ == "json":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(json.dumps(JSON_SCHEMA), schema_registry_client=client)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    from duralog.schemas.protobuf_files import compile_protobuf, load_files

    order = GetMessageClass(load_files(compile_protobuf(PROTO, {})).message_types_by_name["Order"])
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    return lambda payload, place: {
        "customer": None,
        **MessageToDict(read(payload, place), preserving_proto_field_name=True),
    }


@pytest.mark.parametrize(
    ("format_", "name", "text"),
    [
        ("avro", "order.avsc", json.dumps(SECOND)),
        ("protobuf", "order.proto", PROTO),
        ("json", "order.json", json.dumps(JSON_SCHEMA)),
    ],
)
def test_confluents_deserializers_read_it(
    served: tuple[TestBroker, str], tmp_path: Path, format_: str, name: str, text: str
) -> None:
    from confluent_kafka.serialization import MessageField, SerializationContext

    broker, url = served
    file = tmp_path / name
    file.write_text(text)
    topic = f"written-{format_}"
    options = ["-t", topic, "--value-schema", str(file), "--schema-registry", url]
    run("produce", broker.bootstrap_servers, *options, "--no-register", given=LINES, code=1)
    # The second time, the registry has the schema.
    for more in ([], ["--no-register"]):
        run("produce", broker.bootstrap_servers, *options, *more, given=LINES)
    read = deserializer(format_, url)
    place = SerializationContext(topic, MessageField.VALUE)
    found = [read(record.value, place) for record in broker.store.partition(topic, 0).read(0)]
    expected = [{**value, "id": str(value["id"])} for value in VALUES] if format_ == "protobuf" else VALUES
    assert found == expected * 2
    # Without the registry, the topic `_schemas` of the broker has the id.
    run("produce", broker.bootstrap_servers, "-t", topic, "--value-schema", file, "--value", '{"id": 5}')
    shown = rows(broker.bootstrap_servers, "-t", topic, "--value-format", "auto")
    assert shown[-1]["value"]["id"] == 5
    assert shown[-1]["value_schema"].startswith(f"{topic}-value version 1")


def test_an_incompatible_schema_is_refused(served: tuple[TestBroker, str], tmp_path: Path) -> None:
    broker, url = served
    file = tmp_path / "order.avsc"
    for schema, code in ((FIRST, 0), ({**FIRST, "fields": [{"name": "other", "type": "string"}]}, 1)):
        file.write_text(json.dumps(schema))
        value = json.dumps({schema["fields"][0]["name"]: 1})  # type: ignore[index]
        options = ["--value-schema", str(file), "--schema-registry", url, "--value", value]
        found = run("produce", broker.bootstrap_servers, "-t", "changed", *options, code=code)
    assert "409" in found.stderr
    assert "BACKWARD" in found.stderr
