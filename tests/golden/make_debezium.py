"""Records `debezium.json.xz`: the change events of a PostgreSQL database by Debezium, and the database's own tables.

    python -m tests.golden.make_debezium

The events are those of Debezium's engine, in the bytes of several converters. At each point the tables are read with
`row_to_json`, together with the number of records that each topic has then. `tests/support/schemas/change_events.py`
reads the file.
"""

from __future__ import annotations

import base64
import json
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from duralog.schemas import RegistrySettings, fetch_catalogue
from examples.change_capture.postgres_cluster import postgres_cluster, server_binaries
from examples.change_capture.shop import run_in_postgres
from oracle.apicurio_registry import ApicurioRegistry
from oracle.kafka_jars import debezium_class_path
from oracle.kafka_server import free_ports

TARGET = Path(__file__).parent / "debezium.json.xz"
JAVA = Path(__file__).parents[2] / "oracle" / "debezium" / "ChangeEvents.java"
PREFIX = "shop"

BEFORE = """
CREATE TYPE kind AS ENUM ('new', 'used');
CREATE TABLE marks (id integer PRIMARY KEY);
CREATE TABLE items (
    id integer PRIMARY KEY, name varchar(40) NOT NULL, price numeric(12,2), huge numeric(50,10), any_scale numeric,
    made timestamp, made_ms timestamp(3), seen timestamptz, day date, at time, at_zone timetz, span interval,
    doc jsonb, tags text[], numbers integer[], prices numeric(8,3)[], uid uuid, is_new boolean, small smallint,
    large bigint, ratio real, exact double precision, raw bytea, kind kind, host inet, code char(5), bits bit(3)
);
CREATE TABLE lines ("order" text, number integer, quantity integer, PRIMARY KEY ("order", number));
CREATE TABLE notes (text text, number integer);
ALTER TABLE notes REPLICA IDENTITY FULL;
CREATE TABLE pages (id integer PRIMARY KEY, title text, body text);
ALTER TABLE pages ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO items (id, name, price, made) VALUES (1, 'in the snapshot', 9.50, '2026-01-02 03:04:05.678901');
INSERT INTO items (id, name) VALUES (2, 'only nulls');
INSERT INTO lines VALUES ('A-1', 1, 10), ('A-1', 2, 20);
"""
ROW = (
    "'größe \"7\"', {price}, 12345678901234567890123456789012345678.0123456789, {any},"
    " '1969-12-31 23:59:59.999999', '2038-01-19 03:14:08.123', '2026-03-29 02:30:00.5+05:30', '{day}',"
    " '23:59:59.999999', '04:05:06.5-08:00', '1 year 2 mons 3 days 04:05:06.7',"
    ' \'{{"a": [1, 2.50, null], "ü": {{"b": true}}}}\', \'{{x,"y,\\"z",NULL,""}}\', \'{{1,NULL,-2147483648}}\','
    " '{{1.500,-2.250}}', '6f1c2a5e-0d1b-4a57-9b83-3f5d2c1e0a99', true, -32768, 9223372036854775807, 1.5, 0.1,"
    " '\\x00ff10', 'used', '192.168.0.1/24', 'ab', B'101'"
)


def _row(number: int, price: str = "-0.01", any_scale: str = "1.2345", day: str = "2026-02-28") -> str:
    return f"INSERT INTO items VALUES ({number}, {ROW.format(price=price, any=any_scale, day=day)});"


STEPS = (
    # What each step leaves is one point.
    f"""
    {_row(3)} {_row(4, price="9999999999.99", any_scale="'100'", day="1900-01-01")}
    {_row(5, price="NULL", any_scale="0.000000001", day="9999-12-31")}
    INSERT INTO lines VALUES ('B-1', 1, 5);
    INSERT INTO notes VALUES ('first', 1), ('first', 1), ('second', NULL);
    INSERT INTO pages VALUES (1, 'long', repeat('x', 3000)), (2, 'short', 'y');
    """,
    """
    UPDATE items SET price = price + 1 WHERE id IN (1, 3);
    UPDATE items SET name = 'changed', tags = NULL, doc = '[]' WHERE id = 2;
    DELETE FROM items WHERE id = 4;
    UPDATE lines SET number = 7 WHERE "order" = 'A-1' AND number = 2;
    UPDATE lines SET "order" = 'A-2', quantity = 11 WHERE "order" = 'A-1' AND number = 1;
    DELETE FROM lines WHERE "order" = 'B-1';
    UPDATE notes SET number = 2 WHERE text = 'second';
    DELETE FROM notes WHERE ctid = (SELECT min(ctid) FROM notes WHERE text = 'first');
    UPDATE pages SET title = 'still long' WHERE id = 1;
    BEGIN; DELETE FROM items; ROLLBACK;
    SELECT pg_logical_emit_message(true, 'audit', 'a message');
    """,
    f"""
    ALTER TABLE items ADD COLUMN weight numeric(6,3) DEFAULT 1.5;
    ALTER TABLE items DROP COLUMN small;
    ALTER TABLE items ALTER COLUMN name TYPE text;
    UPDATE items SET weight = 2.125 WHERE id = 3;
    {_row(6).replace(" -32768,", "").replace(");", ", NULL);")}
    INSERT INTO items (id, name) VALUES (4, 'again');
    UPDATE pages SET body = repeat('z', 3000) WHERE id = 1;
    """,
    """
    TRUNCATE lines;
    INSERT INTO lines VALUES ('C-1', 1, 1);
    DELETE FROM items WHERE id <> 3;
    DELETE FROM pages;
    """,
)
_JSON = {"class": "org.apache.kafka.connect.json.JsonConverter"}
_KEEP_NULLS = {"replace.null.with.default": "false"}
"""By default, Connect's converters write a column's default in place of null."""
CONVERTERS = {
    "json_with_schemas": {**_JSON, "schemas.enable": "true"},
    "json": {**_JSON, **_KEEP_NULLS, "schemas.enable": "false"},
    "json_numeric": {**_JSON, **_KEEP_NULLS, "schemas.enable": "true", "decimal.format": "NUMERIC"},
}
AVRO = {
    "class": "io.apicurio.registry.utils.converter.AvroConverter",
    "apicurio.registry.auto-register": "true",
    "apicurio.registry.find-latest": "true",
    "apicurio.registry.use-id": "contentId",
}
AVROS = {
    "avro_apicurio": AVRO,
    "avro_confluent": {**AVRO, "apicurio.registry.as-confluent": "true"},
}


def main(target: Path = TARGET) -> None:
    binaries = server_binaries()
    assert binaries is not None, "there is no PostgreSQL server"
    [port] = free_ports(1)
    with postgres_cluster(binaries, port=port) as database, ApicurioRegistry() as registry:
        psql = str(binaries / "psql")
        version = run_in_postgres(psql, database, BEFORE, "SHOW server_version;")
        avros = {name: {**each, "apicurio.registry.url": registry.native} for name, each in AVROS.items()}
        golden = {"postgres": version, **record(psql, database, port, {**CONVERTERS, **avros})}
        catalogue = fetch_catalogue(RegistrySettings(url=registry.confluent))
    golden["schemas"] = [
        {"subject": each.subject, "version": each.version, "id": each.schema.id, "schema": each.schema.text}
        for subject in catalogue.subjects()
        for each in catalogue.versions(subject)
    ]
    with lzma.open(target, "wt", preset=9, encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"), ensure_ascii=False)


def record(psql: str, database: str, port: int, converters: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The events of all converters, and the tables at each point."""
    events: dict[str, list[Any]] = {}
    points = []
    with tempfile.TemporaryDirectory(prefix="duralog-debezium-") as work:
        engine = {
            "name": "golden",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": f"{work}/offsets",
            "offset.flush.interval.ms": "0",
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": "duralog",
            "database.password": "",
            "database.dbname": "postgres",
            "topic.prefix": PREFIX,
            "plugin.name": "pgoutput",
            "skipped.operations": "none",
        }
        plan = json.dumps({"engine": engine, "converters": converters})
        command = ["java", "-Duser.timezone=UTC", "-cp", debezium_class_path(), str(JAVA), plan]
        with (
            open(f"{work}/errors", "w") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            for number, step in enumerate(["", *STEPS]):
                run_in_postgres(psql, database, step, f"INSERT INTO marks VALUES ({number});")
                _read_to_mark(process.stdout, number, events)
                tables = {name: _table(psql, database, name) for name in ("items", "lines", "notes", "pages")}
                points.append({"ends": {topic: len(each) for topic, each in events.items()}, "tables": tables})
            process.stdin.close()
    texts = {
        name: {topic: [_texts(one, name) for one in each] for topic, each in events.items()} for name in converters
    }
    return {"points": points, "events": texts}


def _read_to_mark(lines: Any, number: int, events: dict[str, list[Any]]) -> None:
    for line in lines:
        event = json.loads(line)
        events.setdefault(event["topic"], []).append(event)
        if event["topic"] == f"{PREFIX}.public.marks":
            key = json.loads(base64.b64decode(event["key"]["json"]))
            if key == {"id": number}:
                return
    raise RuntimeError("Debezium's engine ended")


def _table(psql: str, database: str, name: str) -> list[str]:
    return run_in_postgres(
        psql, database, f"SET timezone = 'UTC'; SELECT row_to_json(each)::text FROM {name} each ORDER BY 1;"
    ).splitlines()


def _texts(event: dict[str, Any], name: str) -> list[str | None]:
    """JSON as text, which packs better; Avro in base64."""
    found = []
    for part in ("key", "value"):
        data = event[part][name]
        is_text = data is not None and name.startswith("json")
        found.append(base64.b64decode(data).decode() if is_text else data)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
