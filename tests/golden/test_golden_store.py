"""Directories that Kafka wrote, through `duralog.open`: every record as Kafka's reader saw it, and no needless change.

Opening for reading changes nothing. Opening for writing and closing again changes only what Kafka would rewrite, too;
`REWRITTEN` says what that is.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.storage.store import Store

DATA = Path(__file__).parent / "data"

KEEP_EVERYTHING = {"log.retention.ms": -1}

REWRITTEN = {
    ".lock": "made when a directory is locked, and left behind",
    "__consumer_offsets-1/leader-epoch-checkpoint": "no epoch that starts at the end of the log outlives its loading",
}
"""Of `store`, which Kafka closed. What checkpoints, the marker and snapshots say is the same as before."""


@pytest.fixture(params=["store", "legacy"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / request.param, tmp_path / request.param))


@pytest.fixture
def kafka_made(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "store", tmp_path / "store"))


def partitions_with_truth(directory: Path) -> dict[tuple[str, int], list[Path]]:
    """The truth files of each partition, oldest segment first."""
    found = defaultdict(list)
    for path in sorted(directory.glob("*/*.truth.jsonl.gz")):
        topic, _, partition = path.parent.name.rpartition("-")
        found[topic, int(partition)].append(path)
    assert found
    return found


def truth_batches(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def told(record: duralog.Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type.label,
        "key": digest(record.key),
        "value": digest(record.value),
        "headers": [[digest(name.encode()), digest(content)] for name, content in record.headers],
    }


def digest(content: bytes | None) -> str | None:
    if content is None:
        return None
    return content.hex() if len(content) <= 40 else f"sha1:{hashlib.sha1(content).hexdigest()}:{len(content)}"


def check_against_truth(store: Store, directory: Path) -> None:
    for (topic, number), paths in partitions_with_truth(directory).items():
        log = store.partition(topic, number)
        expected = [
            {name: record[name] for name in ("offset", "timestamp", "key", "value", "headers")}
            | {"timestamp_type": batch["timestamp_type"]}
            for batch in truth_batches(paths)
            if not batch["control"]
            for record in batch["records"]
            if record["offset"] >= log.start_offset
        ]
        assert [told(record) for record in log.read(log.start_offset)] == expected, (topic, number)
        assert log.end_offset == max((batch["last_offset"] + 1 for batch in truth_batches(paths)), default=0)
        assert log.read_arrow().column("offset").to_pylist() == [record["offset"] for record in expected]


def tree(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


def changed(before: dict[str, tuple[bytes, int]], after: dict[str, tuple[bytes, int]]) -> set[str]:
    return {
        name for name in before.keys() | after.keys() if before.get(name, (None,))[0] != after.get(name, (None,))[0]
    }


def test_reading_only_gives_every_record_and_changes_nothing(copied: Path) -> None:
    before = tree(copied)
    with duralog.open(copied, read_only=True) as store:
        check_against_truth(store, copied)
        assert store.plan_retention().failures == {}
    assert tree(copied) == before


def test_opened_for_writing_the_records_are_the_same(copied: Path) -> None:
    for _ in range(2):
        with duralog.open(copied, KEEP_EVERYTHING) as store:
            assert not store.offline
            check_against_truth(store, copied)
    with duralog.open(copied, read_only=True) as store:
        check_against_truth(store, copied)


def test_opening_and_closing_changes_only_what_kafka_would_rewrite(kafka_made: Path) -> None:
    before = tree(kafka_made)
    for _ in range(2):
        duralog.open(kafka_made, KEEP_EVERYTHING).close()
        assert changed(before, tree(kafka_made)) == REWRITTEN.keys()


def test_a_legacy_directory_gets_what_it_lacks_and_keeps_its_logs(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(DATA / "legacy", tmp_path / "legacy"))
    before = tree(copied)
    duralog.open(copied, KEEP_EVERYTHING).close()
    once = tree(copied)
    assert not changed(before, {name: once[name] for name in before})
    of_partitions = {Path(name).suffix or Path(name).name for name in changed(before, once) if "cluster" not in name}
    assert of_partitions >= {".index", ".timeindex", ".metadata", ".snapshot"}
    duralog.open(copied, KEEP_EVERYTHING).close()
    assert not changed(once, tree(copied))


def test_topics_ids_and_configs_come_from_kafkas_metadata(kafka_made: Path) -> None:
    with duralog.open(kafka_made, KEEP_EVERYTHING) as store:
        assert store.topics() == [
            "__consumer_offsets",
            "__transaction_state",
            "appendtime",
            "codecs",
            "codecs-librdkafka",
            "plain",
            "recompress",
            "trimmed",
            "txn",
        ]
        assert store.partitions("codecs") == [0, 1, 2, 3, 4]
        assert store.topic_id("plain") == "kbHEQbtORkGagHr8-qLv1w"
        assert store.topic_overrides("txn") == {"segment.bytes": "1048576", "index.interval.bytes": "1024"}
        assert store.topic_config("__consumer_offsets").cleanup_policy == {"compact"}
        assert store.topic_config("appendtime").message_timestamp_type == "LogAppendTime"
        assert (store.cluster_id, store.node_id) == ("AAAAAAAAQACAAAAAAAAAAQ", 1)
        assert store.partition("trimmed", 0).start_offset == 3456


def test_what_is_appended_follows_what_kafka_wrote(kafka_made: Path) -> None:
    with duralog.open(kafka_made, KEEP_EVERYTHING) as store:
        log = store.partition("plain", 0)
        end_offset = log.end_offset
        assert log.append([duralog.Record(value=b"after Kafka")]).base_offset == end_offset
        topic_id = store.create_topic("added", 2, {"retention.ms": 7})
    # Kafka stopped after epoch 1 had begun, in which nothing was written.
    assert (kafka_made / "plain-0" / "leader-epoch-checkpoint").read_text() == f"0\n2\n0 0\n1 {end_offset}\n"
    with duralog.open(kafka_made, KEEP_EVERYTHING) as store:
        assert [record.value for record in store.partition("plain", 0).read(end_offset)] == [b"after Kafka"]
        assert store.topic_id("added") == topic_id
        assert store.topic_overrides("added") == {"retention.ms": "7"}
        assert not store.offline
