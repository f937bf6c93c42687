"""`job verify`: the findings of `duralog verify`, whatever is damaged; as a DataFrame, JSON and a table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import Result

from duralog.errors import DuralogError, UnknownTopic
from duralog.scanning import executor
from duralog.spark import jobs
from duralog.spark.jobs import VerifyReport, verify
from duralog.storage.checks.verification import Verification
from tests.support.cluster.made import flip, logs, three_nodes
from tests.support.commands import run
from tests.support.places import GOLDEN

pytestmark = pytest.mark.spark

COMMANDS = (("verify",), ("verify", "--engine", "spark"), ("job", "verify"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directory that Kafka closed in order."""
    path = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


def change_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def damage_a_log(store: Path) -> None:
    change_byte(store / "codecs-2" / f"{0:020}.log", 1000)


def damage_everything(store: Path) -> None:
    damage_a_log(store)
    change_byte(store / "plain-0" / f"{3229:020}.index", 7)
    change_byte(store / "txn-0" / f"{80:020}.snapshot", 9)
    (store / "plain-0" / f"{0:020}.timeindex").write_bytes(b"x" * 7)
    (store / "codecs-1" / "partition.metadata").write_text("no such thing\n")
    (store / "recovery-point-offset-checkpoint").write_text("0\n1\nplain 0 999999\n")
    (store / "plain-0" / "leftover.log").touch()
    shutil.rmtree(store / "codecs-3")
    with (store / "codecs-4" / f"{0:020}.log").open("ab") as log:
        log.write(b"\0" * 5 + b"half a batch")
    with (store / "plain-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"\0" * 100)


def told(report: VerifyReport | Verification, partitions: list[Any]) -> list[Any]:
    """Everything that a report says, but for how long it took."""
    totals = {name: value for name, value in report.totals.to_dict().items() if name != "seconds"}
    return [
        [partition.to_dict() for partition in partitions],
        [error.to_dict() for partition in partitions for error in partition.errors],
        [note.to_dict() for partition in partitions for note in partition.notes],
        [error.to_dict() for error in report.errors],
        [note.to_dict() for note in report.notes],
        totals,
    ]


def by_threads(path: Path, **options: Any) -> list[Any]:
    return told(*_verified(path, **options))


@pytest.mark.parametrize("damage", [lambda _: None, damage_a_log, damage_everything])
@pytest.mark.parametrize("deep", [False, True])
def test_the_findings_are_those_of_the_command(
    spark: SparkSession, store: Path, damage: Callable[[Path], None], deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(store)
    monkeypatch.setattr(executor, "SMALLEST_TASK_BYTES", 100_000)
    report = verify(spark, str(store), deep=deep)
    assert told(report, list(report.partitions)) == by_threads(store, decode=deep)
    assert report.is_sound is (report.totals.errors == 0)
    assert report.tasks > 4


@pytest.mark.parametrize("folder", ["legacy", "compaction/before"])
def test_other_directories(spark: SparkSession, folder: str) -> None:
    report = verify(spark, str(GOLDEN / folder))
    assert told(report, list(report.partitions)) == by_threads(GOLDEN / folder)


def test_one_large_partition_is_many_tasks(spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "SMALLEST_TASK_BYTES", 1)
    report = verify(spark, str(store / "plain-0"))
    assert (report.totals.partitions, report.totals.counts.segments, report.tasks) == (1, 3, 3)


def test_topics_and_partitions_can_be_chosen(spark: SparkSession, store: Path) -> None:
    report = verify(spark, str(store), topics=["codecs", "txn"], partition=0)
    assert [partition.name for partition in report.partitions] == ["codecs-0", "txn-0"]
    with pytest.raises(UnknownTopic, match="there is no partition of nothing"):
        verify(spark, str(store), topics=["codecs", "nothing"])


def test_a_folder_that_is_no_log(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DuralogError, match="no log files in here"):
        verify(spark, str(tmp_path))
    with pytest.raises((DuralogError, OSError), match="missing"):
        verify(spark, str(tmp_path / "missing"))


def test_findings_as_a_frame(spark: SparkSession, store: Path) -> None:
    damage_everything(store)
    report = verify(spark, str(store))
    frame = report.frame(spark)
    (row,) = frame.where("kind = 'error' and topic = 'codecs' and partition = 2").collect()
    assert (row.fault, row.position, row.message) == ("CRC_MISMATCH", 0, "wrong checksum")
    assert row.file.endswith(f"codecs-2/{0:020}.log")
    of_directory = {row.message for row in frame.where("kind = 'error' and topic is null").collect()}
    assert any("codecs-3 is missing" in message for message in of_directory)
    assert frame.where("kind = 'error'").count() == report.totals.errors


def test_totals_as_a_frame(spark: SparkSession, store: Path) -> None:
    frame = verify(spark, str(store)).partitions_frame(spark)
    assert frame.count() == 20
    (row,) = frame.where("topic = 'plain'").collect()
    assert (row.segments, row.batches, row.records, row.bytes, row.end_offset) == (3, 247, 6001, 2_245_084, 6001)


def test_a_report_is_json(spark: SparkSession, store: Path) -> None:
    damage_a_log(store)
    told = json.loads(json.dumps(verify(spark, str(store)).to_dict()))
    assert (told["partitions"], told["findings"], len(told["per_partition"])) == (20, 1, 20)
    assert told["errors"][0]["fault"] == "CRC_MISMATCH"


@pytest.fixture
def in_bucket(store: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The directory on an object store: its address, and how to reach it."""
    import boto3
    from moto.server import ThreadedMotoServer

    damage_everything(store)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys)
        client.create_bucket(Bucket="logs")
        for file in store.rglob("*"):
            if file.is_file():
                client.upload_file(str(file), "logs", f"kafka/{file.relative_to(store)}")
        client.close()
        yield (
            "s3://logs/kafka",
            {
                "endpoint_override": f"{host}:{port}",
                "scheme": "http",
                "access_key": "test",
                "secret_key": "test",
                "region": "us-east-1",
            },
        )
    finally:
        server.stop()


def test_a_directory_on_an_object_store(
    spark: SparkSession, store: Path, in_bucket: tuple[str, dict[str, str]]
) -> None:
    address, options = in_bucket
    report = verify(spark, address, storage_options=options)
    remote, local = (
        json.dumps(told(found, partitions)).replace(where, "HERE")
        for found, partitions, where in (
            (report, list(report.partitions), address),
            (*_verified(store), str(store)),
        )
    )
    assert json.loads(remote) == json.loads(local)


def _verified(path: Path, **options: Any) -> tuple[Verification, list[Any]]:
    verification = Verification(str(path), **options)
    return verification, list(verification.run())


def lines_without_time(result: Result) -> list[str]:
    return [line.partition(" in ")[0] for line in result.stdout.splitlines()]


def test_the_command(spark: SparkSession, store: Path) -> None:
    damage_everything(store)
    on_threads, *on_spark = (lines_without_time(run(*command, store, code=1)) for command in COMMANDS)
    assert on_spark == [on_threads, on_threads]


def test_the_command_in_json(spark: SparkSession, store: Path) -> None:
    damage_everything(store)
    rows = [
        [json.loads(line) for line in run(*command, "--json", store, code=1).stdout.splitlines()]
        for command in COMMANDS
    ]
    for row in rows:
        del row[-1]["seconds"]
    assert rows[0] == rows[1] == rows[2]


def test_several_directories_are_those_of_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    flip(logs(nodes[1])[1], 300)
    rows = [
        [json.loads(line) for line in run(*command, "--json", *nodes, code=1).stdout.splitlines()]
        for command in (("cluster", "verify"), *COMMANDS)
    ]
    for row in rows:
        del row[-1]["seconds"]
    assert rows == [rows[0]] * 4


def test_a_sound_directory_is_a_success(spark: SparkSession, store: Path) -> None:
    assert "no findings" in run("job", "verify", store).stdout
    assert run("job", "verify", "--quiet", store).stdout == ""
    assert run("job", "verify", store, "--topic", "plain", "--topic", "txn").stdout.count("\n") > 3


def test_what_is_wrong_with_the_call(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    assert "not of the form NAME=VALUE" in run("job", "verify", store, "--conf", "x", code=2).stderr
    assert "there is no topic nothing in" in run("job", "verify", store, "--topic", "nothing", code=1).stderr
    assert "missing" in run("job", "verify", tmp_path / "missing", code=1).stderr


def test_a_job_is_a_function_also_after_its_module_was_imported() -> None:
    import duralog.spark.jobs.verify

    assert duralog.spark.jobs.verify is verify
    assert "verify" in dir(jobs)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        jobs.nothing  # noqa: B018
