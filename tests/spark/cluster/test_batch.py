"""The directories of a cluster as one frame: what consumers were served, read through damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import duralog
from duralog.errors import CorruptRecord, InvalidConfig, OffsetOutOfRange, StorageError
from duralog.format.checkpoints import EpochStart, encode_leader_epoch_checkpoint
from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.verify import verify_cluster
from duralog.operations.workers import OnSpark
from duralog.spark import explain
from duralog.spark.jobs.stats import stats
from duralog.spark.option_text import InvalidOption
from duralog.spark.source.planned_read import plan_read, take_snapshot
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns, schema_of
from duralog.spark.source.task_reading import SliceTask, read_task
from tests.support.cluster.made import (
    TOPIC,
    cut,
    flip,
    logs,
    set_leader_epoch,
    three_nodes,
    write_high_watermark,
    write_meta,
)
from tests.support.cluster.recorded import consumed, unpack

pytestmark = pytest.mark.spark

RECORDED = ["orders-0", "orders-1", "orders-2", "unclean-0", "users-0", "payments-0", "again-0", "expired-0"]
BATCH = 300
"""Some byte within the second batch of a segment."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("cluster")
    return folder, unpack(folder)


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    """Three equal directories, 60 records each. Without metadata, the first one is chosen."""
    return three_nodes(tmp_path)


def read(spark: SparkSession, paths: str | list[str], **options: str) -> DataFrame:
    return spark.read.format("duralog").options(**options).load(paths)


def options_of(paths: list[Path], **more: str) -> ReadOptions:
    return ReadOptions.of({"paths": json.dumps([str(path) for path in paths]), **more}, streaming=False)


def rows(options: ReadOptions, snapshot: Any = None) -> list[dict[str, Any]]:
    """What the tasks of a read return, without a session."""
    columns = Columns(schema_of(options), options)
    tasks = plan_read(options, snapshot).tasks
    return [
        row for task in tasks for batch in read_task(SliceTask(task), columns, options) for row in batch.to_pylist()
    ]


def offsets(options: ReadOptions, snapshot: Any = None) -> list[int]:
    return [row["offset"] for row in rows(options, snapshot)]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_frame_has_what_consumers_read(
    spark: SparkSession, recorded: tuple[Path, dict[str, Any]], isolation: str
) -> None:
    """Several queries on one frame, filtered and cached, of a cluster with an unclean election."""
    folder, truth = recorded
    options = {"kafka.isolation.level": isolation, "includeCopies": "true"}
    frame = read(spark, f"{folder}/broker-*/data*", **options)
    assert frame.columns[-2:] == ["_copy", "_healed"]
    expected = {
        (*partition.rsplit("-", 1), *record)
        for partition in RECORDED
        for record in consumed(truth, partition, isolation)
    }
    found = frame.collect()
    assert {(row.topic, str(row.partition), row.offset, bytes(row.key), bytes(row.value)) for row in found} == expected
    assert len(found) == len(expected)
    assert not any(row["_healed"] for row in found)
    assert {row["_copy"] for row in found if row.topic == "unclean"} == {f"{folder}/broker-2/data2"}
    assert frame.where("topic = 'orders' and offset >= 100").count() == 60
    assert frame.where("topic = 'users'").count() == 27
    assert frame.count() == len(expected)
    cached = frame.cache()
    try:
        assert cached.where("partition = 0").count() + cached.where("partition != 0").count() == len(expected)
    finally:
        cached.unpersist()


def test_lists_manifests_and_damage(spark: SparkSession, nodes: list[Path], tmp_path: Path) -> None:
    flip(logs(nodes[0])[1], BATCH)
    cut(logs(nodes[1])[2], 100)
    manifest = tmp_path / "backup.json"
    manifest.write_text(json.dumps({"directories": ["broker-1", "broker-2", "broker-3"]}))
    frame = read(spark, [str(node) for node in nodes], columns="offset,_copy,_healed")
    found = sorted(map(tuple, frame.collect()))
    assert [offset for offset, _, _ in found] == list(range(60))
    assert [(offset, copy) for offset, copy, is_healed in found if is_healed] == [
        (offset, str(nodes[1])) for offset in (18, 19, 20)
    ]
    assert {copy for _, copy, is_healed in found if not is_healed} == {str(nodes[0])}
    assert read(spark, str(manifest)).count() == 60
    view = f"OPTIONS (path '{tmp_path}/broker-*')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_cluster USING duralog {view}")
    assert spark.sql("select count(*), count(distinct offset) from of_cluster").first() == (60, 60)


def test_a_frame_is_of_the_time_of_load(nodes: list[Path]) -> None:
    options = options_of(nodes)
    write_high_watermark(nodes[0], 33)
    write_high_watermark(nodes[1], 30)
    write_high_watermark(nodes[2], 30)
    snapshot = take_snapshot(options)
    assert offsets(options, snapshot) == list(range(33))
    # The high watermark rises: not for this frame. It is known no more: the records are still there.
    write_high_watermark(nodes[1], 60)
    assert offsets(options, snapshot) == list(range(33))
    assert offsets(options) == list(range(60))
    for node in nodes:
        write_high_watermark(node, 20)
    assert offsets(options, snapshot) == list(range(33))
    assert offsets(options) == list(range(20))
    assert offsets(options_of(nodes, toEnd="true")) == list(range(60))
    # A copy that is gone when a task reads it is one that does not have its records.
    shutil.rmtree(nodes[0])
    assert offsets(options, snapshot) == list(range(33))


def test_another_history_since_load_is_an_error_that_names_the_offset(nodes: list[Path]) -> None:
    options = options_of(nodes)
    snapshot = take_snapshot(options)
    # As after an unclean election: a leader with a later epoch began at offset 45.
    checkpoint = encode_leader_epoch_checkpoint(
        [EpochStart(0, 0), EpochStart(1, 15), EpochStart(2, 30), EpochStart(9, 45)]
    )
    (nodes[2] / f"{TOPIC}-0" / LEADER_EPOCH_CHECKPOINT).write_bytes(checkpoint)
    set_leader_epoch(logs(nodes[2])[3], 9)
    with pytest.raises(OffsetOutOfRange, match=r"orders-0: offsets 0 to 60 .* other records from offset 45 on"):
        plan_read(options, snapshot)
    assert plan_read(options_of(nodes, failOnDataLoss="false"), snapshot).tasks == ()


def test_damage_in_all_copies(nodes: list[Path]) -> None:
    for node in nodes:
        flip(logs(node)[1], BATCH)
    with pytest.raises(CorruptRecord, match="offsets 18 to 20 of orders-0 cannot be read from any copy"):
        rows(options_of(nodes))
    found = rows(options_of(nodes, mode="PERMISSIVE", includeCopies="true"))
    assert [row["offset"] for row in found if row["_corrupt"] is None] == [*range(18), *range(21, 60)]
    (damage,) = [row["_corrupt"] for row in found if row["_corrupt"] is not None]
    assert (damage["firstOffset"], damage["lastOffset"]) == (18, 20)


def test_offsets_times_and_tasks(nodes: list[Path]) -> None:
    flip(logs(nodes[0])[1], BATCH)
    ranged = options_of(
        nodes, startingOffsets='{"orders":{"0":10}}', endingOffsets='{"orders":{"0":25}}', minPartitions="4"
    )
    assert offsets(ranged) == list(range(10, 25))
    planned = plan_read(options_of(nodes, minPartitions="4"))
    assert len(planned.tasks) >= 3
    with pytest.raises(OffsetOutOfRange, match="offset 99 was asked for"):
        plan_read(options_of(nodes, startingOffsets='{"orders":{"0":99}}'))
    assert offsets(options_of(nodes, startingTimestamp="1")) == list(range(60))
    assert not offsets(options_of(nodes, startingTimestamp=str(2**62), startingOffsetsByTimestampStrategy="latest"))
    # An end above the high watermark needs no record: it is where reading ends.
    for node in nodes:
        write_high_watermark(node, 33)
    assert offsets(options_of(nodes, endingTimestamp=str(2**62))) == list(range(33))


def test_explain_says_which_copy_is_read_and_what_the_others_have(nodes: list[Path]) -> None:
    logs(nodes[1])[3].unlink()
    text = str(explain([str(node) for node in nodes]))
    assert f"orders-0: offsets 0 to 60 from {nodes[0]}: it has the latest leader epoch" in text
    assert f"also node 2, {nodes[1]}: offsets 0 to 45, the same to 45" in text
    assert explain([str(node) for node in nodes]).to_dict()["partitions"][0]["node_id"] == 1


def test_typed_payloads_come_from_the_cluster(spark: SparkSession, nodes: list[Path]) -> None:
    flip(logs(nodes[0])[1], BATCH)
    options = {"value.format": "string", "columns": "offset,value,_healed"}
    frame = read(spark, [str(node) for node in nodes], **options)
    found = frame.orderBy("offset").collect()
    assert [row.offset for row in found] == list(range(60))
    assert found[19].value.startswith("1-1-1 ")
    assert found[19]["_healed"]


def test_the_stats_job_counts_what_consumers_were_served(spark: SparkSession, nodes: list[Path]) -> None:
    flip(logs(nodes[0])[1], BATCH)
    expected = duralog.stats(str(nodes[2]), prefix_length=1).to_dict()
    found = stats(spark, [str(node) for node in nodes], prefix_length=1).to_dict()
    for name in ("topics", "partitions", "prefixes"):
        assert found[name] == expected[name]


def test_what_is_refused(spark: SparkSession, nodes: list[Path], tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="option toEnd is for the directories of a cluster"):
        read(spark, str(nodes[0]), toEnd="true")
    with pytest.raises(InvalidOption, match="no column _copy of one log directory"):
        schema_of(ReadOptions.of({"path": str(nodes[0]), "columns": "_copy"}, streaming=False))
    with pytest.raises(InvalidOption, match="option cluster is false, but there are 3 directories"):
        options_of(nodes, cluster="false")
    with pytest.raises(InvalidOption, match="a JSON list of log directories"):
        ReadOptions.of({"paths": "/a,/b"}, streaming=False)
    with pytest.raises(StorageError, match="no directory matches"):
        take_snapshot(ReadOptions.of({"path": f"{tmp_path}/no-*"}, streaming=False))
    assert offsets(ReadOptions.of({"path": str(nodes[0]), "cluster": "true"}, streaming=False)) == list(range(60))
    assert offsets(options_of([nodes[0], nodes[0], nodes[1]])) == list(range(60))
    write_meta(nodes[2], 3, cluster_id="another-cluster-abcdeQ")
    with pytest.raises(InvalidConfig, match="the directories belong to 2 clusters"):
        take_snapshot(options_of(nodes))


KEYS = {"access_key": "key", "secret_key": "secret", "region": "us-east-1", "scheme": "http"}


@pytest.fixture
def bucket() -> Iterator[tuple[pafs.FileSystem, dict[str, str]]]:
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {**KEYS, "endpoint_override": f"{host}:{port}"}
        files = pafs.S3FileSystem(**options, allow_bucket_creation=True)
        files.create_dir("backup")
        yield files, {f"fs.{name}": value for name, value in options.items()}
    finally:
        server.stop()


def test_a_glob_on_an_object_store(
    spark: SparkSession, nodes: list[Path], bucket: tuple[pafs.FileSystem, dict[str, str]]
) -> None:
    files, options = bucket
    flip(logs(nodes[0])[1], BATCH)
    for node in nodes:
        files.create_dir(f"backup/{node.name}/data", recursive=True)
        pafs.copy_files(str(node), f"backup/{node.name}/data", destination_filesystem=files)
    frame = read(spark, "s3://backup/broker-*/data", **options, includeCopies="true")
    found = frame.collect()
    assert sorted(row.offset for row in found) == list(range(60))
    assert {row["_copy"] for row in found} == {"s3://backup/broker-1/data", "s3://backup/broker-2/data"}
    assert frame.where("_healed").count() == 3


def test_copies_are_compared_on_spark_as_on_threads(spark: SparkSession, nodes: list[Path]) -> None:
    flip(logs(nodes[1])[1], BATCH)
    logs(nodes[2])[2].unlink()
    request = ClusterRequest(paths=[str(node) for node in nodes])
    found, expected = verify_cluster(request, OnSpark(spark)), verify_cluster(request)
    assert found.partitions == expected.partitions
    assert found.finding_count == expected.finding_count > 0
    assert {each.finding for each in found.partitions[0].findings} >= {"damage", "hole"}
