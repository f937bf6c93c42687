"""What a write from Spark leaves, Kafka opens and serves; and what a running Kafka holds, goes through its port."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

import duralog
from duralog.errors import InvalidConfig, StorageError, StoreLocked
from duralog.format.murmur2 import partition_of_key
from duralog.spark.sink import commit as committing
from duralog.spark.sink.broker_sink import broker_targets, send
from duralog.spark.sink.staging import StagedTask, WriteTask
from duralog.spark.sink.staging_task import stage_rows
from duralog.spark.sink.write_options import AppVersion, WriteOptions
from duralog.spark.sink.writers import DuralogArrowWriter, DuralogStreamArrowWriter
from oracle.dump_check import dump_complaints
from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import KafkaServer
from oracle.partition_view import PartitionView, seen_by_duralog, seen_by_kafka
from tests.support.spark import staged_writes
from tests.support.spark.staged_writes import WRITER, options_of, rows_of, stage

pytestmark = pytest.mark.interop

NOW_MS = int(time.time() * 1000)
PATIENCE_SECONDS = 60
OTHER = "e" * 32
LOGS = [("wide", 0), ("wide", 1), ("wide", 2), ("compacted", 0), ("stamped", 0), ("restored", 0), ("restored", 1)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def write(options: WriteOptions, *tasks: list[pa.RecordBatch], transaction: AppVersion | None = None) -> None:
    staged_writes.write(options, *tasks, transaction=transaction, now_ms=NOW_MS)


def numbered(first: int, count: int, **columns: object) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return rows_of(
        key=[b"key %d" % (number % 20) for number in numbers],
        value=[b"value %d " % number * 5 for number in numbers],
        timestamp=[NOW_MS - 60_000 + number for number in numbers],
        headers=pa.array([[("n", b"%d" % number)] for number in numbers], HEADERS),
        **columns,
    )


@dataclass
class Served:
    directory: Path
    made: dict[tuple[str, int], PartitionView] = field(default_factory=dict)
    served: dict[tuple[str, int], PartitionView] = field(default_factory=dict)
    dump: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def served(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A directory that nothing but the sink has written to, with all that a write may leave in it."""
    served = Served(tmp_path_factory.mktemp("sink") / "store")
    path = served.directory
    segments = {"topic.segment.bytes": 1 << 20}
    wide = options_of(path, topic="wide", partitions=3, codec="zstd", level=5, batchSize=500, **segments)
    write(wide, [numbered(0, 300), numbered(300, 300)], [numbered(600, 100)])
    write(wide, [numbered(700, 50)], transaction=AppVersion(application="query 1", version=4))
    large = rows_of(key=[b"k"] * 300, value=[bytes(10_000)] * 300, timestamp=[NOW_MS] * 300)
    lag = {"topic.cleanup.policy": "compact", "topic.min.compaction.lag.ms": 10**9}
    write(options_of(path, topic="compacted", **segments, **lag), [large, numbered(0, 50)])
    stamped = options_of(path, topic="stamped", codec="lz4", **{"topic.message.timestamp.type": "LogAppendTime"})
    write(stamped, [numbered(0, 40)])
    restored = options_of(path, topic="restored", partitions=2, preserveOffsets="true", codec="snappy")
    first = numbered(0, 100, partition=[0] * 100, offset=[1000 + 7 * number for number in range(100)])
    second = numbered(100, 9, partition=[1] * 9, offset=[*range(9)], timestampType=pa.array([1] * 9, pa.int32()))
    write(restored, [second], [first])
    stage(wide, [[numbered(0, 5)]], writer=OTHER, now_ms=NOW_MS)
    with duralog.open(path) as store:
        served.made = {log: seen_by_duralog(store.partition(*log)) for log in LOGS}
    served.dump = dump_complaints(kafka, path)
    with KafkaServer(kafka, path) as server:
        server.topics()
        served.served = {log: seen_by_kafka(server, *log) for log in LOGS}
        served.errors = server.errors
    return served


@pytest.mark.parametrize(("topic", "partition"), LOGS)
def test_kafka_serves_what_was_written(served: Served, topic: str, partition: int) -> None:
    assert served.served[topic, partition] == served.made[topic, partition]


def test_all_rows_are_there(served: Served) -> None:
    """Guards the tests above, which empty logs would pass."""
    counts = Counter[str]()
    for (topic, _), view in served.served.items():
        counts[topic] += len(view.records)
    assert counts == {"wide": 750, "compacted": 350, "stamped": 40, "restored": 109}
    view = served.served["restored", 0]
    assert (view.start_offset, view.end_offset) == (1000, 1694)
    assert len(list((served.directory / "compacted-0").glob("*.log"))) >= 3


def test_kafka_has_nothing_to_complain_of(served: Served) -> None:
    # Offsets that were left out on purpose are no complaint.
    assert [line for line in served.dump if not line.startswith("restored-0: ")] == []
    assert served.errors == []
    assert sorted(file.suffix for file in served.directory.glob("duralog-sink*")) == [".committed", ".staged"]


@dataclass
class Held:
    """A directory that a running broker holds."""

    path: Path
    server: KafkaServer

    def committed(self, topic: str, partition: int = 0) -> list[Json]:
        """What readers get that ask for committed records only, once no transaction is open.

        Kafka answers that one has ended before it writes the markers.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        end = self.server.consume(topic, partition)["end"]
        while (found := self.server.consume(topic, partition, isolation="read_committed"))["end"] < end:
            assert time.monotonic() < until, f"a transaction is still open in {topic}-{partition}"
        records: list[Json] = found["records"]
        return records

    def left(self) -> list[Path]:
        return list(self.path.glob("duralog-sink*"))


@pytest.fixture(scope="module")
def held(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    path = tmp_path_factory.mktemp("held") / "store"
    with duralog.open(path) as store:
        store.create_topic("t", 5)
        store.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    with KafkaServer(kafka, path) as server:
        server.topics()
        yield Held(path, server)


def through_the_port(held: Held, **options: object) -> WriteOptions:
    return options_of(held.path, kafka__bootstrap__servers=held.server.bootstrap, **options)


def staged(options: WriteOptions, *tasks: list[pa.RecordBatch]) -> list[StagedTask]:
    targets = broker_targets(options)
    return [stage_rows(rows, targets, options, WriteTask(WRITER, 0, number)) for number, rows in enumerate(tasks)]


def test_a_directory_that_kafka_holds(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "LOCK_WAIT_SECONDS", 0.0)
    options = options_of(held.path, topic="t")
    with pytest.raises(StoreLocked, match=r"give its address in the option kafka\.bootstrap\.servers"):
        write(options, [numbered(0, 10)])


def test_rows_go_through_the_port_once(held: Held) -> None:
    options = through_the_port(held, topic="t", codec="lz4")
    named = AppVersion(application="query 7", version=3)
    reports = []
    for _ in range(2):
        tasks = staged(options, [numbered(0, 200)], [numbered(200, 100)])
        reports.append(send(tasks, options, writer=WRITER, transaction=named))
    later = AppVersion(application="query 7", version=4)
    reports.append(send(staged(options, [numbered(300, 10)]), options, writer=WRITER, transaction=later))
    reports.append(send(staged(options, [numbered(0, 10)]), options, writer=WRITER, transaction=named))
    assert [(report.records, report.is_repeated) for report in reports] == [
        (300, False),
        (0, True),
        (10, False),
        (0, True),
    ]
    found = [record for number in range(5) for record in held.committed("t", number)]
    assert sorted(bytes.fromhex(str(record["value"])) for record in found) == sorted(
        b"value %d " % number * 5 for number in range(310)
    )
    for number in range(5):
        for record in held.committed("t", number):
            assert partition_of_key(bytes.fromhex(record["key"]), 5) == number
    assert held.left() == []


def test_a_write_that_comes_again_with_rows_for_another_topic(held: Held) -> None:
    options = through_the_port(held)
    named = AppVersion(application="query 9", version=1)
    for topic, is_repeated in (("one", False), ("another", True)):
        rows = staged(options, [rows_of(topic=[topic], value=["x"])])
        assert send(rows, options, writer=WRITER, transaction=named).is_repeated is is_repeated
    assert len(held.committed("one")) == 1
    assert held.committed("another") == []


def test_applications_with_names_alike(held: Held) -> None:
    options = through_the_port(held, topic="alike")
    for application in ("app a b", "app a.b"):
        named = AppVersion(application=application, version=1)
        send(staged(options, [rows_of(value=[application])]), options, writer=WRITER, transaction=named)
    assert len(held.committed("alike")) == 2


def test_the_one_time_that_the_client_would_change_is_refused(held: Held) -> None:
    options = through_the_port(held, topic="t")
    with pytest.raises(duralog.InvalidRecord, match="column timestamp, row 1 of task 0, for t-0: 0, the start of 1970"):
        staged(options, [rows_of(value=["x", "y"], partition=[0, 0], timestamp=[1, 0])])


def test_a_topic_is_made_with_its_configs(held: Held) -> None:
    options = through_the_port(held, topic="made", partitions=3, **{"topic.retention.ms": 123_456_789})
    send(staged(options, [numbered(0, 30)]), options, writer=WRITER)
    made = held.server.topics()["made"]
    assert (made["partitions"], made["configs"]) == (3, {"retention.ms": "123456789"})
    assert sum(len(held.committed("made", number)) for number in range(3)) == 30


def test_a_topic_whose_partitions_changed_meanwhile(held: Held) -> None:
    wide = through_the_port(held, topic="changed", partitions=3)
    rows = staged(wide, [numbered(0, 30)])
    narrow = through_the_port(held, topic="changed", partitions=2)
    send(staged(narrow, [numbered(0, 5)]), narrow, writer=OTHER)
    with pytest.raises(duralog.InvalidRecord, match="changed has 2 partitions, but 3 when the partitions of the rows"):
        send(rows, wide, writer=WRITER)
    committing.discard(wide, writer=WRITER)


def test_what_the_broker_would_refuse_is_refused_by_the_tasks(held: Held) -> None:
    options = through_the_port(held, topic="compacted")
    with pytest.raises(duralog.InvalidRecord, match="column key, row 0 of task 0, for compacted-0: null"):
        staged(options, [rows_of(value=["x"])])


def test_a_transaction_that_fails_shows_nothing(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's connection breaks after rows were sent."""
    options = through_the_port(held, topic="broken", partitions=1)
    tasks = staged(options, [numbered(0, 50)])
    named = AppVersion(application="query 8", version=0)

    def fail(*_: object) -> None:
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))

    with monkeypatch.context() as patched:
        patched.setattr("duralog.spark.sink.broker_sink._Memory.add_to", fail)
        with pytest.raises(StorageError, match=f"the broker at {held.server.bootstrap}"):
            send(tasks, options, writer=WRITER, transaction=named)
    assert held.server.consume("broken", 0, isolation="read_committed")["records"] == []
    assert send(tasks, options, writer=WRITER, transaction=named).records == 50
    assert len(held.committed("broken")) == 50


class Task:
    """What Spark tells a task about itself."""

    def __init__(self, number: int, **properties: str) -> None:
        self.number = number
        self.properties = properties

    def partitionId(self) -> int:  # noqa: N802
        return self.number

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name.replace(".", "_"))


def test_sparks_writers_go_through_the_port(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers as Spark calls them: made by the driver, pickled to the tasks and back to the commit."""
    schema = StructType().add("key", StringType()).add("value", StringType())
    options = {
        "path": str(held.path),
        "topic": "by-spark",
        "kafka.bootstrap.servers": held.server.bootstrap,
    }
    tasks = [[rows_of(key=["a", None], value=[f"{task} 1", f"{task} 2"])] for task in range(2)]

    def run_tasks(writer: DuralogArrowWriter | DuralogStreamArrowWriter, **properties: str) -> list[Any]:
        reports = []
        for number, rows in enumerate(tasks):
            monkeypatch.setattr(TaskContext, "get", lambda number=number: Task(number, **properties))
            reports.append(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(rows)))))
        return reports

    writer = DuralogArrowWriter(schema, options, False)
    writer.commit(run_tasks(writer))
    assert len(held.committed("by-spark")) == 4
    for batch in ("0", "1", "1"):
        stream = DuralogStreamArrowWriter(schema, options, False)
        reports = run_tasks(stream, sql_streaming_queryId="a-query", streaming_sql_batchId=batch)
        DuralogStreamArrowWriter(schema, options, False).commit(reports, int(batch))
    found = held.committed("by-spark")
    assert Counter(bytes.fromhex(str(record["value"])) for record in found) == dict.fromkeys(
        [b"0 1", b"0 2", b"1 1", b"1 2"], 3
    )
    assert held.left() == []


def test_librdkafka_chooses_the_same_partitions(held: Held) -> None:
    """Its `murmur2` is the one that Java clients have."""
    chosen: dict[bytes | None, int | None] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": held.server.bootstrap, "partitioner": "murmur2_random"})
    for number in range(200):
        key = b"k" * (number % 9) + b"%d" % number

        def note(_error: object, message: confluent_kafka.Message) -> None:
            chosen[message.key()] = message.partition()

        producer.produce("t", b"", key, on_delivery=note)
    assert producer.flush(60) == 0
    assert len(chosen) == 200
    assert {key: partition_of_key(key, 5) for key in chosen if key is not None} == chosen


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("kafka.lingering.ms", "5", 'No such configuration property: "lingering.ms"'),
        ("kafka.linger.ms", "soon", "Invalid value for configuration property"),
    ],
)
def test_a_config_that_the_client_refuses_ends_the_write_before_it_begins(
    tmp_path: Path, name: str, value: str, told: str
) -> None:
    given = {"path": str(tmp_path), "topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1", name: value}
    with pytest.raises(InvalidConfig) as refused:
        broker_targets(WriteOptions.of(given, streaming=False))
    assert told in str(refused.value)


def test_no_broker_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("duralog.spark.sink.broker_sink._ANSWER_SECONDS", 1.0)
    options = WriteOptions.of(
        {"path": str(tmp_path), "topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, streaming=False
    )
    with pytest.raises(StorageError, match=r"the broker at 127\.0\.0\.1:1: "):
        broker_targets(options)
