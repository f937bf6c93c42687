"""Figures of a log without Spark: all of them against a plain count, record by record and batch by batch."""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.config import BrokerConfig
from duralog.errors import DuralogError, InvalidConfig, UnknownTopic
from duralog.format import batches as plain_batches
from duralog.format.compression import Codec
from duralog.spark.jobs.stats import LogFigures, StatsReport, stats
from duralog.statistics.key_prefixes import PrefixRule
from duralog.storage.compaction.preview import ExplainSettings, explain_compaction
from duralog.storage.compaction.settings import CleanerSettings
from duralog.storage.store import Store
from tests.support.places import GOLDEN
from tests.support.spark.lake_directory import START_MS, run_here

collection = importlib.import_module("duralog.statistics.collection")
logs = importlib.import_module("duralog.scanning.logs")
stats_module = importlib.import_module("duralog.spark.jobs.stats")


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch, stats_module)


def run(path: Path, **options: Any) -> StatsReport:
    return stats(None, str(path), **options)  # type: ignore[arg-type]


def plain_figures(path: Path, figures: LogFigures) -> dict[str, Any]:
    """The same figures of the partition with none of the kernels. A batch in which the log begins counts as a whole."""
    start_offset = figures.start_offset or 0
    seen: dict[str, Any] = defaultdict(int)
    codecs: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    keys: set[bytes] = set()
    sizes: list[int] = []
    times: list[int] = []
    held: list[int] = [0]
    for log in sorted((path / f"{figures.topic}-{figures.partition}").glob("*.log")):
        data = log.read_bytes()
        for batch in plain_batches.scan(data):
            if batch.last_offset < start_offset:
                continue
            sizes.append(batch.size_bytes)
            codec = codecs[Codec(batch.attributes & 7).label]
            codec[0] += 1
            codec[1] += batch.size_bytes
            held.append(len(plain_batches.decode_records(data, batch)))
            if batch.magic == 2 and batch.attributes & 0x20:
                seen["control_batches"] += 1
                continue
            for record in plain_batches.decode_records(data, batch):
                if record.offset < start_offset:
                    continue
                seen["records"] += 1
                seen["keyless_records"] += record.key is None
                seen["tombstones"] += record.key is not None and record.value is None
                seen["untimed_records"] += record.timestamp_ms == -1
                seen["key_bytes"] += len(record.key or b"")
                seen["value_bytes"] += len(record.value or b"")
                keys |= {record.key} - {None}  # type: ignore[arg-type]
                times += [record.timestamp_ms] if record.timestamp_ms != -1 else []
    return {
        **dict.fromkeys(("control_batches", "records", "keyless_records", "tombstones", "untimed_records"), 0),
        **dict.fromkeys(("key_bytes", "value_bytes"), 0),
        **seen,
        "distinct_keys": len(keys),
        "duplicate_records": seen["records"] - seen["keyless_records"] - len(keys),
        "batches": len(sizes),
        "disk_bytes": sum(sizes),
        "smallest_batch_bytes": min(sizes, default=None),
        "largest_batch_bytes": max(sizes, default=None),
        "most_records_of_a_batch": max(held),
        "first_timestamp_ms": min(times, default=None),
        "last_timestamp_ms": max(times, default=None),
        "codecs": {name: tuple(counts) for name, counts in codecs.items()},
    }


def told(figures: LogFigures) -> dict[str, Any]:
    names = [
        *("control_batches", "records", "keyless_records", "tombstones", "untimed_records", "key_bytes", "value_bytes"),
        *("distinct_keys", "duplicate_records", "batches", "disk_bytes", "smallest_batch_bytes"),
        *("largest_batch_bytes", "most_records_of_a_batch", "first_timestamp_ms", "last_timestamp_ms"),
    ]
    codecs = {name: (counts["batches"], counts["disk_bytes"]) for name, counts in figures.codecs.items()}
    return {**{name: getattr(figures, name) for name in names}, "codecs": codecs}


@pytest.mark.parametrize("folder", ["store", "legacy", "compaction/after"])
@pytest.mark.parametrize("max_slice_bytes", [4096, 128 << 20])
def test_logs_of_kafka(folder: str, max_slice_bytes: int) -> None:
    path = GOLDEN / folder
    report = run(path, max_slice_bytes=max_slice_bytes, compaction=False)
    assert report.is_sound
    assert {(found.topic, found.partition): told(found) for found in report.partitions} == {
        (found.topic, found.partition): plain_figures(path, found) for found in report.partitions
    }
    for topic in report.topics:
        of_topic = [found for found in report.partitions if found.topic == topic.topic]
        for name in ("records", "distinct_keys", "duplicate_records", "tombstones", "disk_bytes", "unpacked_bytes"):
            assert getattr(topic, name) == sum(getattr(found, name) for found in of_topic)


def make(path: Path, config: dict[str, Any] | None = None) -> None:
    with duralog.open(str(path), config={"log.cleaner.enable": "false"}) as store:
        store.create_topic("t", 1, {"index.interval.bytes": "300", **(config or {})})
        log = store.partition("t", 0)
        for place in range(0, 600, 20):
            records = [
                duralog.Record(
                    key=None if number % 11 == 0 else b"%s:%d" % (b"red" if number % 3 else b"blue", number % 40),
                    value=None if number % 9 == 0 else b"value" * (number % 13),
                    timestamp_ms=START_MS + number,
                )
                for number in range(place, place + 20)
                if config is None or number % 11
            ]
            log.append(records, codec=["none", "gzip", "snappy", "lz4", "zstd"][place // 20 % 5])
        log.roll()


@pytest.mark.parametrize("options", [{"prefix_separator": ":"}, {"prefix_length": 1}, {"prefix_length": 100}])
def test_prefixes(tmp_path: Path, options: dict[str, Any]) -> None:
    make(tmp_path / "data")
    report = run(tmp_path / "data", **options, max_slice_bytes=2000)
    expected: dict[bytes | None, list[Any]] = {}
    with duralog.open(str(tmp_path / "data"), read_only=True) as store:
        for record in store.partition("t", 0).read(0):
            prefix = record.key
            if prefix is not None:
                prefix = prefix[: options["prefix_length"]] if "prefix_length" in options else prefix.partition(b":")[0]
            seen = expected.setdefault(prefix, [0, 0, 0, set(), []])
            seen[0] += 1
            seen[1] += record.value is None and record.key is not None
            seen[2] += len(record.key or b"") + len(record.value or b"")
            seen[3] |= {record.key} - {None}
            seen[4].append(record.timestamp_ms)
    assert [found.prefix for found in report.prefixes] == sorted(expected, key=lambda prefix: prefix or b"")
    for found in report.prefixes:
        records, tombstones, content, keys, times = expected[found.prefix]
        assert (found.records, found.tombstones, found.unpacked_bytes) == (records, tombstones, content)
        assert found.distinct_keys == len(keys)
        assert found.duplicate_records == (0 if found.prefix is None else records - len(keys))
        assert (found.first_timestamp_ms, found.last_timestamp_ms) == (min(times), max(times))
        assert 0 < found.disk_bytes <= report.partitions[0].disk_bytes
    assert sum(found.records for found in report.prefixes) == report.partitions[0].records


def test_sizes_without_compression(tmp_path: Path) -> None:
    """What a batch unpacks to is what the same batch takes without a codec."""
    sizes = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with duralog.open(str(tmp_path / codec)) as store:
            store.create_topic("t", 1)
            records = [duralog.Record(key=b"k%d" % n, value=b"v" * 200, timestamp_ms=START_MS) for n in range(300)]
            store.partition("t", 0).append(records, codec=codec)
        (found,) = run(tmp_path / codec).partitions
        sizes[codec] = found.unpacked_bytes
        ratio = found.compression_ratio or 0
        assert (ratio == 1.0) if codec == "none" else (ratio > 5)
        assert list(found.codecs) == [codec]
    assert len(set(sizes.values())) == 1


def test_the_largest_records(tmp_path: Path) -> None:
    make(tmp_path / "data")
    with duralog.open(str(tmp_path / "data")) as store:
        log = store.partition("t", 0)
        log.append([duralog.Record(key=b"big" * 50, value=b"x" * 3000, timestamp_ms=START_MS)])
        everything = list(log.read(0))
    expected = sorted(
        ((len(record.key or b"") + len(record.value or b""), -record.offset) for record in everything), reverse=True
    )
    for largest in (0, 1, 7):
        (found,) = run(tmp_path / "data", largest=largest, max_slice_bytes=3000).partitions
        told_sizes = [(record.size_bytes, -record.offset) for record in found.largest_records]
        assert told_sizes == expected[:largest]
    assert (found.largest_records[0].key, found.largest_records[0].timestamp_ms) == ((b"big" * 50)[:64], START_MS)


def test_what_compaction_would_save_is_what_it_says_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "data", {"cleanup.policy": "compact"})
    at_ms = collection.wall_clock_ms()
    monkeypatch.setattr(collection, "wall_clock_ms", lambda: at_ms)
    (found,) = run(tmp_path / "data").partitions
    config = BrokerConfig.of({"log.cleaner.enable": "false"})
    with Store(str(tmp_path / "data"), config=config, clock=lambda: at_ms) as store:
        cleaner = CleanerSettings.of(store.config)
        settings = ExplainSettings(now_ms=at_ms, compaction=cleaner.compaction)
        preview = explain_compaction(store.partition("t", 0), None, settings).report
        assert preview is not None
        report = store.compact("t", 0)
    assert found.compaction is not None
    saved = (found.compaction.records, found.compaction.size_bytes)
    assert saved == (preview.records_before - preview.records_after, preview.bytes_before - preview.bytes_after)
    assert saved == (report.records_before - report.records_after, report.bytes_before - report.bytes_after)
    assert found.compaction.records == found.duplicate_records > 0
    (after,) = run(tmp_path / "data").partitions
    assert after.compaction is not None
    assert (after.compaction.records, after.duplicate_records) == (0, 0)
    assert run(tmp_path / "data", compaction=False).partitions[0].compaction is None


def test_damage_is_reported_and_the_rest_is_counted(tmp_path: Path) -> None:
    make(tmp_path / "data")
    sound = run(tmp_path / "data").partitions[0]
    log = min((tmp_path / "data" / "t-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    report = run(tmp_path / "data", prefix_length=2)
    (found,) = report.partitions
    assert not report.is_sound
    assert len(found.damage) == 1
    assert "offsets" in found.damage[0]
    assert (found.batches, found.records) == (sound.batches - 1, sound.records - 20)


def test_a_folder_that_does_not_say_whose_it_is_costs_the_others_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    with duralog.open(tmp_path) as store:
        store.create_topic("other", 1)
    sound = run(tmp_path)
    (tmp_path / "other-0" / "partition.metadata").write_text("no such thing")
    found = run(tmp_path)
    assert not found.is_sound
    assert [len(partition.damage) for partition in found.partitions] == [1, 0]
    assert "partition.metadata: line 1" in found.partitions[0].damage[0]
    assert found.partitions[1] == sound.partitions[1]


def test_what_retention_deletes_meanwhile_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    with duralog.open(tmp_path, config={"log.cleaner.enable": "false"}) as store:
        store.partition("t", 0).append([duralog.Record(key=b"late", value=b"", timestamp_ms=START_MS)])
    plan = logs.plan

    def then_delete(*arguments: Any, **options: Any) -> Any:
        planned = plan(*arguments, **options)
        for file in (tmp_path / "t-0").glob(f"{0:020}.*"):
            file.unlink()
        return planned

    monkeypatch.setattr(logs, "plan", then_delete)
    (found,) = run(tmp_path, prefix_length=2).partitions
    assert (found.records, found.batches, found.distinct_keys, found.duplicate_records) == (1, 1, 1, 0)


def test_a_topic_without_records(tmp_path: Path) -> None:
    with duralog.open(str(tmp_path)) as store:
        store.create_topic("empty", 2)
    report = run(tmp_path, prefix_length=3)
    (topic,) = report.topics
    assert (topic.records, topic.batches, topic.compression_ratio, topic.first_timestamp_ms) == (0, 0, None, None)
    assert report.prefixes == ()


def test_json_shows_keys_as_text(tmp_path: Path) -> None:
    with duralog.open(str(tmp_path)) as store:
        store.create_topic("t", 1)
        keys = (b"\xff\x00", b"0x12", "né".encode(), None)
        store.partition("t", 0).append([duralog.Record(key=key, value=b"", timestamp_ms=1) for key in keys])
    told_prefixes = [found["prefix"] for found in run(tmp_path, prefix_length=9).to_dict()["prefixes"]]
    assert told_prefixes == [None, "0x30783132", "né", "0xff00"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix_length": 0}, "a prefix has 1 byte at least, not 0"),
        ({"prefix_separator": "ab"}, "the separator of prefixes is one byte, not 'ab'"),
        ({"prefix_separator": "é"}, "the separator of prefixes is one byte, not 'é'"),
        ({"prefix_length": 1, "prefix_separator": ":"}, "give only one of them"),
    ],
)
def test_prefixes_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        run(tmp_path, **options)


def test_no_such_topic() -> None:
    with pytest.raises(UnknownTopic, match="there is no topic nope"):
        run(GOLDEN / "store", topics=["nope"])


def test_too_many_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "data")
    monkeypatch.setattr("duralog.statistics.record_counts.MOST_PREFIXES", 10)
    with pytest.raises(DuralogError, match="there are more than 10 prefixes"):
        run(tmp_path / "data", prefix_length=20)
    assert PrefixRule.of(None, None) is None
