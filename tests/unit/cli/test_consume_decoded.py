"""`duralog consume` with decoded keys and values, from a directory and from a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

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
