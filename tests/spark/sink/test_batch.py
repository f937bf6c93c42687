"""Batch writes with Spark: rows arrive once, whole and in the right place, or nothing does and a sentence says why."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import duralog
from duralog.format.murmur2 import partition_of_key
from duralog.format.record import Record
from duralog.spark.sink.writers import DuralogArrowWriter

pytestmark = pytest.mark.spark

ROWS = 500


def frame(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + ROWS, numPartitions=3).selectExpr(
        "cast(concat('key ', id % 50) as binary) as key",
        "concat('value ', id) as value",
        "timestamp_millis(1700000000000 + id) as timestamp",
        "array(named_struct('key', 'source', 'value', cast('spark' as binary))) as headers",
    )


def save(rows: DataFrame, path: Path, **options: bool | float | str) -> None:
    rows.write.format("duralog").mode("append").options(**options).save(str(path))


def stored(path: Path, topic: str) -> dict[int, list[Record]]:
    with duralog.open(path, read_only=True) as store:
        return {number: list(store.partition(topic, number).read(0)) for number in store.partitions(topic)}


def left_in(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("duralog-sink*"))


def test_rows_become_records(spark: SparkSession, tmp_path: Path) -> None:
    save(frame(spark), tmp_path, topic="t", partitions=4, codec="zstd")
    found = stored(tmp_path, "t")
    records = [record for partition in found.values() for record in partition]
    assert {record.value for record in records} == {b"value %d" % number for number in range(ROWS)}
    assert len(records) == ROWS
    for partition, of_partition in found.items():
        assert {partition_of_key(record.key or b"", 4) for record in of_partition} == {partition}
        for record in of_partition:
            number = int((record.value or b"").split()[1])
            assert record.key == b"key %d" % (number % 50)
            assert record.timestamp_ms == 1_700_000_000_000 + number
            assert list(record.headers) == [("source", b"spark")]
        numbers = [record.timestamp_ms for record in of_partition]
        assert numbers == sorted(numbers), "the order of the rows of a partition"
    assert left_in(tmp_path) == []


def test_what_was_written_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark).selectExpr("*", "if(timestamp > '2023', 'a', 'b') as topic", "1 as partition")
    save(rows, tmp_path, partitions=2)
    read = spark.read.format("duralog").option("includeHeaders", "true").load(str(tmp_path))
    assert read.where("topic = 'a' and partition = 1").count() == ROWS
    written = rows.selectExpr("key", "cast(value as binary) as value", "timestamp", "headers")
    assert read.select(*written.columns).exceptAll(written).isEmpty()


def test_a_backup_comes_back_with_its_offsets(spark: SparkSession, tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with duralog.open(backup) as store:
        store.create_topic("t", 2)
        for number in range(2):
            log = store.partition("t", number)
            for value in range(40):
                log.append([Record(key=b"k", value=b"%d" % value, timestamp_ms=1000 + value)])
            log.delete_records(10 + number)
    read = spark.read.format("duralog").option("includeHeaders", "true").load(str(backup))
    save(read.coalesce(1), restored / "as it is", preserveOffsets="true", partitions=2)
    shuffled = read.repartition(3, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    save(shuffled, restored / "sorted", preserveOffsets="true", partitions=2)
    for path in restored.iterdir():
        with duralog.open(path) as store:
            for number in range(2):
                log = store.partition("t", number)
                assert (log.start_offset, log.end_offset) == (10 + number, 40)
                assert [(record.offset, record.value) for record in log.read(log.start_offset)] == [
                    (value, b"%d" % value) for value in range(10 + number, 40)
                ]
    with pytest.raises(PySparkException, match="column offset"):
        save(read.orderBy("value", ascending=False), tmp_path / "unsorted", preserveOffsets="true", partitions=2)


def test_a_named_write_happens_once(spark: SparkSession, tmp_path: Path) -> None:
    for version in (3, 3, 4):
        save(frame(spark, ROWS * version), tmp_path, topic="t", txnAppId="loader", txnVersion=version)
    assert len(stored(tmp_path, "t")[0]) == 2 * ROWS
    assert left_in(tmp_path) == ["duralog-sink.committed"]


def test_a_version_may_go_to_several_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a `foreachBatch` does that writes its rows twice. The writers are called as Spark calls them."""

    class FirstTask:
        def partitionId(self) -> int:  # noqa: N802
            return 0

    monkeypatch.setattr(TaskContext, "get", FirstTask)
    schema = StructType().add("value", "string")
    for topic in ("a", "b", "a"):
        options = {"path": str(tmp_path), "topic": topic, "txnAppId": "loader", "txnVersion": "1"}
        writer = DuralogArrowWriter(schema, options, False)
        writer.commit([writer.write(iter([pa.record_batch({"value": ["x"]})]))])
    assert [len(stored(tmp_path, topic)[0]) for topic in ("a", "b")] == [1, 1]


REFUSALS: dict[str, tuple[dict[str, str], str, str]] = {
    "an unknown option": ({"topik": "t"}, "", "there is no option topik: did you mean topic?"),
    "no topic": ({}, "", "neither a column topic nor the option topic"),
    "an unknown column": ({"topic": "t"}, "1 as colour", "column colour: there is no such column in a log"),
    "a wrong type": ({"topic": "t"}, "'0' as partition", "column partition: expected int, found string"),
    "a partition too many": ({"topic": "t"}, "3 as partition", "3: t has the partitions 0 to 0"),
    "a null topic": ({}, "if(value = 'value 499', null, 't') as topic", "column topic, row 166 of task 2: null"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_with_a_sentence(spark: SparkSession, tmp_path: Path, case: str) -> None:
    options, column, told = REFUSALS[case]
    rows = frame(spark).selectExpr("*", *([column] if column else []))
    with pytest.raises(PySparkException) as refused:
        save(rows, tmp_path, **options)
    assert told in str(refused.value)
    assert "Traceback" not in str(refused.value)
    # A task that was still running when the write was aborted may leave its file, which nobody will read.
    assert [name for name in left_in(tmp_path) if not name.endswith(".staged")] == []
    assert not list(tmp_path.glob("t-*"))


def test_only_appending_is_possible(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="mode overwrite cannot be written: a log is only appended to"):
        frame(spark).write.format("duralog").mode("overwrite").option("topic", "t").save(str(tmp_path))


def test_a_null_key_into_a_compacted_topic(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark).drop("key")
    with pytest.raises(PySparkException, match=r"column key, row 0 of task \d, for t-0: null"):
        save(rows, tmp_path, topic="t", **{"topic.cleanup.policy": "compact"})
    assert not (tmp_path / "t-0").exists()
