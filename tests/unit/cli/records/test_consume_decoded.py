"""`duralog consume` with decoded keys and values, from a directory and from a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import duralog
from duralog.command_line import app
from duralog.testing import running_broker
from tests.support.typed_log import write_typed_log


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed")
    write_typed_log(path)
    return path


def consume(place: object, *options: str) -> tuple[list[str], str]:
    found = CliRunner().invoke(app, ["consume", str(place), *options])
    assert found.exit_code == 0, found.output
    return found.stdout.splitlines(), found.stderr


def test_lines(path: Path) -> None:
    lines, said = consume(path, "--topic", "orders", "--value-format", "auto")
    assert lines[0].endswith('"a"  {"id":0,"customer":null}')
    assert lines[5].endswith('{"id":0,"customer":{"name":"x"}}')
    assert lines[10].endswith("null  null")
    assert "orders: values are avro" in said
    assert "subject 'orders-value' version 2" in said


def test_json_has_the_schema_or_the_reason(path: Path) -> None:
    lines, _ = consume(path, "--topic", "bad", "--offset", "1099", "--value-format", "avro", "--json")
    good, unknown, damaged = map(json.loads, lines)
    assert good["value"] == {"id": 1, "customer": None}
    assert good["value_schema"] == "orders-value version 2 (id 4)"
    assert (unknown["value"], unknown["value_error"]) == ("\0\0\0\0\tzz", "unknown schema id 9")
    assert "damaged Avro" in damaged["value_error"]


def test_values_and_formats(path: Path) -> None:
    lines, _ = consume(path, "--topic", "orders", "--limit", "1", "--value-format", "avro", "--values")
    assert lines == ['{"id":0,"customer":null}']
    lines, _ = consume(path, "--topic", "orders", "--limit", "1", "--value-format", "avro", "--format", "%o %s\\n")
    assert lines == ['0 {"id":0,"customer":null}']


def test_what_is_not_certain_is_shown_as_it_is(path: Path) -> None:
    lines, said = consume(path, "--topic", "texts", "--value-format", "avro")
    assert lines[0].endswith('"plain words"')
    assert "values of texts are shown as bytes" in said


def test_what_to_give_where_the_format_is_not_certain(path: Path) -> None:
    with duralog.open(path) as store:
        store.create_topic("mixed", 1, exist_ok=True)
        store.partition("mixed", 0).append(
            [duralog.Record(value=value) for value in (b"\x00\x00\x00\x00\x09a", b"text")]
        )
    _, said = consume(path, "--topic", "mixed", "--value-format", "auto")
    assert "Name it with --value-format" in said


@pytest.mark.parametrize("option", ["--value-format", "--key-format"])
def test_a_format_that_does_not_exist(path: Path, option: str) -> None:
    wrong = CliRunner().invoke(app, ["consume", str(path), "--topic", "orders", option, "xml"], env={"COLUMNS": "400"})
    assert wrong.exit_code == 2
    assert f"{option} 'xml': give one of auto, binary, avro, protobuf, json" in wrong.stderr


def test_wrong_options(path: Path) -> None:
    for options in (
        ["--value-format", "avro", "--schema-registry-config", "x"],
        ["--schema-registry", "http://127.0.0.1:1"],
    ):
        assert CliRunner().invoke(app, ["consume", str(path), "--topic", "orders", *options]).exit_code == 2


def test_through_a_broker(path: Path) -> None:
    with running_broker(data=str(path)) as broker:
        lines, said = consume(broker.bootstrap_servers, "--topic", "orders", "--value-format", "auto", "--values")
    assert sorted(lines)[-1] == '{"id":4,"customer":{"name":"x"}}'
    assert "orders: values are avro" in said
