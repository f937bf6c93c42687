"""`duralog dump` and `duralog lookup` with decoded keys and values: directories, files, damage, exports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import duralog
from duralog.command_line import app
from duralog.testing import running_broker
from tests.support.typed_log import SECOND, write_typed_log

LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed")
    write_typed_log(path)
    return path


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == code, found.output
    return found


def objects(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def test_lines_have_the_schema_or_the_reason(path: Path) -> None:
    found = run("dump", path / "bad-0" / LOG, "--value-format", "auto", "--offsets", "1099:")
    lines = [line for line in found.stdout.splitlines() if line.startswith("|")]
    assert lines[0].endswith('key null  value {"id":1,"customer":null} [orders-value version 2 (id 4)]')
    assert lines[1].endswith("value 0x00000000097a7a [unknown schema id 9]")
    assert "value 0x00000000040209 [damaged Avro at byte 1" in lines[2]
    assert "columns of subject 'orders-value' version 2" in found.stderr
    assert run("dump", path / "bad-0", "--value-format", "auto", "--quiet").stderr == ""


def test_json_is_that_of_consume(path: Path) -> None:
    dumped = objects("dump", path, "--topic", "orders", "--value-format", "avro", "--key-format", "string")
    consumed = objects("consume", path, "--topic", "orders", "--value-format", "avro", "--key-format", "string")
    assert [{**row, "headers": []} for row in consumed] == dumped
    assert dumped[5]["value"] == {"id": 0, "customer": {"name": "x"}}
    assert dumped[0]["value_schema"] == "orders-value version 1 (id 3)"
    assert dumped[10]["value"] is None


def test_one_segment_finds_the_schemas_around_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path / "orders-0")
    assert objects("dump", LOG, "--value-format", "auto", "--limit", 1)[0]["value"] == {"id": 0, "customer": None}
    # Elsewhere there are none: a file with the schema is enough.
    alone = tmp_path / "saved.log"
    shutil.copy(path / "bad-0" / LOG, alone)
    found = run("dump", alone, "--value-format", "avro", "--limit", 1)
    assert "the values of saved.log are shown as bytes" in found.stderr
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(SECOND))
    with running_broker(data=str(path)) as broker, broker.schema_registry() as url:
        rows = objects("dump", alone, "--value-format", "auto", "--schema-registry", url, "--limit", 1)
    assert rows[0]["value"] == {"id": 1, "customer": None}


def test_damage_is_reported_and_the_rest_is_decoded(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "copy")
    log = tmp_path / "copy" / "orders-0" / LOG
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    found = run("dump", log, "--value-format", "auto", "--json", code=1)
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert sum("error" in row for row in rows) == 1
    assert [row["value"] for row in rows if "offset" in row][-2] == {"id": 4, "customer": {"name": "x"}}


@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_exports_have_the_columns_of_a_scan(path: Path, tmp_path: Path, extension: str) -> None:
    to = tmp_path / f"bad.{extension}"
    run("dump", path / "bad-0", "--value-format", "auto", "--to", to)
    found = pq.read_table(to) if extension == "parquet" else pa.ipc.open_file(to).read_all()
    assert found.equals(duralog.scan(path, topic="bad", decode="auto").to_arrow().combine_chunks())


def test_csv_has_json_for_what_has_fields(path: Path, tmp_path: Path) -> None:
    to = tmp_path / "orders.csv"
    run("dump", path / "orders-0", "--value-format", "auto", "--key-format", "string", "--to", to)
    lines = to.read_text().splitlines()
    assert lines[0].endswith('"key","value","headers","_corrupt"')
    assert lines[6].endswith('"a","{""id"":0,""customer"":{""name"":""x""}}","[]",')
    assert lines[-1].endswith(',,,"[]",')


def test_an_export_names_what_it_leaves_out(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("plain", 1)
        values = [{"id": number} | ({"coupon": "c"} if number > 1100 else {}) for number in range(1200)]
        store.partition("plain", 0).append([duralog.Record(value=json.dumps(each).encode()) for each in values])
    shown = run(
        "dump", tmp_path / "data" / "plain-0", "--value-format", "json", "--to", tmp_path / "plain.parquet"
    ).output
    assert "fields of JSON that the sampled records do not have are left out: value.coupon (99x)." in " ".join(
        shown.split()
    )
    # A line has all of them.
    [*_, last] = objects("dump", tmp_path / "data" / "plain-0", "--value-format", "json")
    assert last["value"] == {"id": 1199, "coupon": "c"}


def test_an_export_has_one_type(path: Path, tmp_path: Path) -> None:
    to = tmp_path / "all.parquet"
    found = run("dump", path, "--value-format", "auto", "--to", to, code=1)
    assert "An export has one type: choose a topic with --topic" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_lookup(path: Path) -> None:
    found = run("lookup", path / "orders-0", "--offset", 7, "--value-format", "auto")
    last = found.stdout.splitlines()[-1]
    assert last.endswith('key "a"  value {"id":2,"customer":{"name":"x"}} [orders-value version 2 (id 4)]')
    row = objects("lookup", path, "--topic", "bad", "--offset", 1100, "--value-format", "avro")[-1]
    assert (row["kind"], row["value_error"]) == ("record", "unknown schema id 9")
    text = run("lookup", path, "--topic", "texts", "--offset", 0, "--value-format", "avro")
    assert 'value "plain words"' in text.stdout
    assert "the values of texts are shown as bytes" in text.stderr


def test_wrong_options(path: Path) -> None:
    for options in (["--raw", "--value-format", "auto"], ["--summary", "--value-format", "auto"]):
        run("dump", path, *options, code=2)
    run("lookup", path, "--offset", 0, "--schema-registry", "http://127.0.0.1:1", code=2)
