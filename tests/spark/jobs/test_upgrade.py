"""`job upgrade`: every log of an old directory in format v2, with the digests of its records before and after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.columnar.upgrading import UpgradeRules
from duralog.errors import DuralogError, StoreLocked, UnknownTopic
from duralog.format.batches import scan
from duralog.format.compression import Codec
from duralog.spark.jobs import compact, repair, retain, upgrade, verify
from tests.support import commands
from tests.support.places import GOLDEN
from tests.support.storage.legacy_logs import LegacyWriter, records_in

pytestmark = pytest.mark.spark

LEGACY = GOLDEN / "legacy"
TOPICS = 12


@pytest.fixture
def legacy(tmp_path: Path) -> Path:
    """A directory of old formats and codecs."""
    path = tmp_path / "legacy"
    shutil.copytree(LEGACY, path, ignore=shutil.ignore_patterns("*.gz"))
    return path


def logs(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.glob("v*/*.log")) if file.stat().st_size
    }


def closed_in_order(path: Path) -> None:
    """With indexes and the marker, so that opening it looks at no log as a whole."""
    duralog.open(str(path), config={"log.retention.ms": -1}).close()


def test_all_logs_are_upgraded(spark: SparkSession, legacy: Path) -> None:
    before = logs(legacy)
    report = upgrade(spark, str(legacy))
    assert report.is_done
    after = logs(legacy)
    assert after.keys() == before.keys()
    for name, data in after.items():
        assert records_in(data) == records_in(before[name])
        assert {batch.magic for batch in scan(data)} == {2}
    for found in report.upgrades:
        assert found.segments == 1
        assert str(found.before) == str(found.after) != "0" * 32
    assert report.summary()["upgraded"] == TOPICS
    assert verify(spark, str(legacy)).is_sound


def test_the_directory_is_closed_in_order(spark: SparkSession, legacy: Path) -> None:
    closed_in_order(legacy)
    upgrade(spark, str(legacy))
    assert (legacy / ".kafka_cleanshutdown").exists()
    assert not list(legacy.rglob("*.deleted"))
    with duralog.open(str(legacy), config={"log.retention.ms": -1}) as store:
        for topic in store.topics():
            log = store.partition(topic, 0)
            assert sum(1 for _ in log.read(log.start_offset)) > 400


def test_a_second_run_has_nothing_to_do(spark: SparkSession, legacy: Path) -> None:
    first = upgrade(spark, str(legacy))
    before = logs(legacy)
    second = upgrade(spark, str(legacy))
    assert second.summary()["segments"] == 0
    assert logs(legacy) == before
    assert [str(found.after) for found in first.upgrades] == [str(found.before) for found in second.upgrades]


def test_a_dry_run_changes_nothing(spark: SparkSession, legacy: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in legacy.rglob("*") if path.is_file()}
    report = upgrade(spark, str(legacy), dry_run=True)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in legacy.rglob("*") if path.is_file()}
    assert after == before
    told = report.summary()
    assert (told["upgraded"], told["bytes_before"]) == (TOPICS, sum(map(len, logs(legacy).values())))
    assert told["messages"] == upgrade(spark, str(legacy)).summary()["messages"]


@pytest.mark.parametrize("job", [compact, repair, retain, upgrade])
def test_no_job_rehearses_what_it_would_refuse(spark: SparkSession, legacy: Path, job: Callable[..., object]) -> None:
    with pytest.raises(DuralogError, match="this is one partition"):
        job(spark, str(legacy / "v0-none-0"), dry_run=True)
    with pytest.raises(DuralogError, match="no log files in here"):
        job(spark, str(legacy.parent), dry_run=True)


def test_topics_and_a_codec_can_be_chosen(spark: SparkSession, legacy: Path) -> None:
    before = logs(legacy)
    rules = UpgradeRules(codec=Codec.ZSTD)
    report = upgrade(spark, str(legacy), topics=["v0-none", "v1-gzip"], rules=rules)
    assert [found.partition.topic for found in report.partitions] == ["v0-none", "v1-gzip"]
    after = logs(legacy)
    changed = {name.partition("/")[0] for name in after if after[name] != before[name]}
    assert changed == {"v0-none-0", "v1-gzip-0"}
    assert {batch.codec_id for batch in scan(after[f"v0-none-0/{1000:020}.log"])} == {Codec.ZSTD}
    with pytest.raises(UnknownTopic, match="there is no topic nothing"):
        upgrade(spark, str(legacy), topics=["nothing"])


def test_damage_in_one_partition_costs_the_others_nothing(spark: SparkSession, legacy: Path) -> None:
    closed_in_order(legacy)
    (log,) = (legacy / "v1-lz4-0").glob("*.log")
    damaged = bytearray(log.read_bytes())
    damaged[200] ^= 1
    log.write_bytes(damaged)
    report = upgrade(spark, str(legacy))
    assert not report.is_done
    (found,) = [found for found in report.partitions if not found.is_done]
    assert found.upgrade is not None
    assert "wrong checksum" in found.upgrade.left[1000]
    assert log.read_bytes() == bytes(damaged)
    assert report.summary()["upgraded"] == TOPICS - 1


def test_a_directory_in_use_is_refused(spark: SparkSession, legacy: Path) -> None:
    with duralog.open(str(legacy)), pytest.raises(StoreLocked):
        upgrade(spark, str(legacy))
    with pytest.raises(DuralogError, match="there is no such directory"):
        upgrade(spark, str(legacy / "missing"))


def test_many_segments_of_mixed_formats(spark: SparkSession, tmp_path: Path) -> None:
    writer = LegacyWriter(3)
    folder = tmp_path / "data" / "mixed-0"
    folder.mkdir(parents=True)
    before = b""
    for _ in range(5):
        base_offset, data = writer.next_offset, writer.batches(10)
        (folder / f"{base_offset:020}.log").write_bytes(data)
        before += data
    report = upgrade(spark, str(tmp_path / "data"))
    assert report.upgrades[0].segments == 5
    after = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    assert records_in(after) == records_in(before)


def test_a_frame_of_the_digests(spark: SparkSession, legacy: Path) -> None:
    frame = upgrade(spark, str(legacy)).frame(spark)
    assert frame.where("digest_before = digest_after and records > 400").count() == TOPICS
    (row,) = frame.where("topic = 'v0-none'").collect()
    assert (row.partition, row.segments, row.messages, row.left, row.failure) == (0, 1, 674, 0, None)


run = partial(commands.run, "job", "upgrade")


def test_the_command(spark: SparkSession, legacy: Path) -> None:
    dry = run(legacy, "--dry-run").stdout
    assert "in 12 segments of 12 partitions would be upgraded" in dry
    lines = run(legacy).stdout.splitlines()
    assert lines[0].split() == ["partition", *("segments", "messages", "batches", "records", "bytes", "now", "digest")]
    assert len(lines[1].split()[-1]) == 32
    assert "the records are the same, by their digests" in lines[-1]
    assert run(legacy).stdout.strip() == "nothing is of an old format"


def test_the_command_in_json(spark: SparkSession, legacy: Path) -> None:
    rows = [json.loads(line) for line in run(legacy, "--json", "--codec", "lz4").stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["partition"] * TOPICS + ["summary"]
    assert all(row["digest_before"] == row["digest_after"] for row in rows[:-1])
    assert "unknown codec 'best'" in run(legacy, "--codec", "best", code=2).stderr
