"""pyarrow is an extra: a store, a broker and most commands work without it, and the others name the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""

STORE = """
import duralog
from duralog.errors import MissingExtra
records = [duralog.Record(key=b"k", value=b"v", headers=[("a", b"b")])] * 3
with duralog.open(sys.argv[1], {"log.segment.bytes": 1048576}) as store:
    store.create_topic("orders", 1, {"cleanup.policy": "compact"})
    log = store.partition("orders", 0)
    for codec in ("none", "zstd", "lz4", "gzip", "snappy"):
        log.append(records, codec=codec)
        log.append([duralog.Record(key=b"k", value=bytes(900_000))])
    assert sum(1 for _ in log.read(0)) == 20
    store.compact("orders", 0)
    assert sum(1 for _ in log.read(0)) < 20
    for use in (log.read_arrow, lambda: duralog.scan(sys.argv[1]), lambda: duralog.stats(sys.argv[1])):
        try:
            use()
        except MissingExtra as error:
            print(error)
"""

BROKER = """
import confluent_kafka
from duralog.testing import running_broker
with running_broker() as broker:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = confluent_kafka.Producer(servers)
    producer.produce("orders", key="k", value="v")
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    print(consumer.poll(60).value())
    consumer.close()
"""

COMMAND = """
from duralog.command_line import main
sys.argv = ["duralog", *sys.argv[1:]]
main()
"""

FORMAT = """
from duralog.errors import MissingExtra
from duralog.spark.data_source import DuralogDataSource
for use in (DuralogDataSource.schema, DuralogDataSource.__getstate__, lambda source: source.writer(None, False)):
    try:
        use(DuralogDataSource({"path": sys.argv[1], "subscribe": "orders"}))
    except MissingExtra as error:
        print(error)
"""
SENTENCE = "for Arrow tables, duralog needs pyarrow: pip install 'duralog[arrow]'"


def run(program: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_store(tmp_path: Path) -> None:
    assert run(STORE, str(tmp_path)).stdout.splitlines() == [SENTENCE] * 3


def test_the_format_of_spark(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    assert run(FORMAT, str(tmp_path)).stdout.splitlines() == [SENTENCE] * 3


def test_a_broker() -> None:
    assert run(BROKER).stdout == "b'v'\n"


def test_a_command_that_needs_it(tmp_path: Path) -> None:
    run(COMMAND, "topic", "create", str(tmp_path), "--topic", "orders", "--partitions", "1")
    for command in (["stats", str(tmp_path)], ["dump", str(tmp_path / "orders-0"), "--to", str(tmp_path / "a.csv")]):
        said = run(COMMAND, *command, code=1).stderr
        assert said == f"duralog: error: {SENTENCE}\n"
