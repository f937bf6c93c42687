"""`duralog retain`: which segments go and why, and that the right ones went."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog import Record
from duralog.command_line import app
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.store import Store
from tests.support import commands
from tests.support.places import GOLDEN

T0 = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


retain = partial(commands.run, "retain")


objects = partial(commands.objects, "retain")


def gone(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["topic"], row["base_offset"]) for row in rows if row.get("kind") == "segment"]


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_dry_run_changes_nothing(store: Path) -> None:
    before = contents(store)
    rows = objects("--dry-run", store)
    assert ("plain", 0) in gone(rows)
    assert contents(store) == before
    assert rows[-1]["dry_run"]


def test_by_size(store: Path) -> None:
    rows = objects("-n", "--topic", "plain", "--retention-bytes", 1_100_000, "--retention-ms", -1, store)
    (segment,) = [row for row in rows if row.get("kind") == "segment"]
    assert (segment["base_offset"], segment["end_offset"], segment["policy"]) == (0, 3229, "retention.bytes")
    assert segment["bytes"] == rows[-1]["bytes"] == 1_045_518


def test_by_age(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age_ms = 10_000_000
    monkeypatch.setattr("duralog.cli.retain.now_ms", lambda: T0 + age_ms)
    # Between the newest records of the first segment and of the second.
    limit = age_ms - 22_596 - 10_000
    rows = objects("-n", "--topic", "plain", "--retention-ms", limit, store)
    assert gone(rows) == [("plain", 0)]
    assert {row["policy"] for row in rows if row.get("kind") == "segment"} == {"retention.ms"}
    assert gone(objects("-n", "--topic", "plain", "--retention-ms", -1, store)) == []


def test_below_the_log_start(store: Path) -> None:
    with Store(str(store)) as opened:
        opened.partition("plain", 0).delete_records(before_offset=3300)
    rows = objects("-n", "--topic", "plain", "--retention-ms", -1, store)
    assert gone(rows) == [("plain", 0)]
    assert rows[-2]["policy"] == "log start offset"


def test_compacted_topics_keep_everything(store: Path) -> None:
    topics = {topic for topic, _ in gone(objects("-n", "--retention-ms", 0, store))}
    assert "plain" in topics
    assert topics.isdisjoint({"__consumer_offsets", "__transaction_state"})


def test_segments_go(store: Path) -> None:
    would = objects("--dry-run", "--topic", "plain", "--retention-bytes", 1_100_000, "--retention-ms", -1, store)
    went = objects("--topic", "plain", "--retention-bytes", 1_100_000, "--retention-ms", -1, store)
    assert gone(would) == gone(went) == [("plain", 0)]
    folder = store / "plain-0"
    assert sorted(path.name for path in folder.glob("*.log*")) == [
        "00000000000000003229.log",
        "00000000000000006000.log",
    ]
    assert not list(folder.glob("*.deleted"))
    with Store(str(store), read_only=True) as opened:
        assert opened.partition("plain", 0).start_offset == 3229
        assert len(opened.partition("codecs", 1).segments) == 1
    assert CliRunner().invoke(app, ["verify", "-q", str(store)]).exit_code == 0


def test_the_overrides_hold_for_one_run(store: Path) -> None:
    retain("--topic", "plain", "--retention-ms", 1000, store)
    with Store(str(store), read_only=True) as opened:
        assert "retention.ms" not in opened.topic_overrides("plain")


def test_configs_of_the_topic_and_of_the_broker(store: Path, tmp_path: Path) -> None:
    with Store(str(store)) as opened:
        opened.alter_topic_config("codecs", {"retention.ms": -1})
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=-1\nlog.retention.bytes=-1\nnode.id=1\n")
    assert "codecs" not in {topic for topic, _ in gone(objects("-n", store))}
    rows = objects("-n", "--server-properties", properties, store)
    assert gone(rows) == []
    assert not any("note" in row for row in rows)
    assert any("Kafka's default" in row.get("note", "") for row in objects("-n", store))
    properties.write_text("log.retention.ms=soon\n")
    assert "log.retention.ms" in retain("-n", "--server-properties", properties, store, code=1).stderr


def test_the_retention_of_each_topic_and_where_it_came_from(store: Path, tmp_path: Path) -> None:
    with Store(str(store)) as opened:
        opened.alter_topic_config("codecs", {"retention.ms": 60_000})
        opened.alter_configs_of(4, "", {"log.retention.bytes": "5000"})
    rows = {row["topic"]: row for row in objects("-n", store) if row.get("kind") == "retention"}
    assert rows["plain"] == {
        "kind": "retention",
        "topic": "plain",
        "retention_ms": 604_800_000,
        "retention_ms_from": "Kafka's default",
        "retention_bytes": 5000,
        "retention_bytes_from": "log.retention.bytes of the broker, set dynamically",
    }
    assert rows["codecs"]["retention_ms_from"] == "set for the topic"
    assert "__consumer_offsets" not in rows, "it is compacted: no retention applies"
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=48\n")
    lines = retain("-n", "-t", "plain", "--server-properties", properties, store).stdout
    assert "# plain: retention.ms=172800000 (2 days, log.retention.hours of the broker), retention.bytes=5000" in lines
    lines = retain("-n", "-t", "plain", "--retention-ms", -1, store).stdout
    assert "# plain: retention.ms=-1 (no limit, --retention-ms)" in lines


def test_of_many_topics_the_first_retentions_are_shown(tmp_path: Path) -> None:
    with Store(str(tmp_path / "data")) as opened:
        for number in range(12):
            opened.create_topic(f"t{number:02}", 1)
        opened.partition("t11", 0).append([Record(value=b"v", timestamp_ms=T0)])
    lines = retain("-n", tmp_path / "data").stdout.splitlines()
    shown = [line for line in lines if "retention.ms=" in line]
    assert len(shown) == 10
    assert shown[0].startswith("# t11: ")
    assert "# retention: of 2 more topics: --json has all" in lines


def test_what_a_store_holds_goes_when_it_is_asked_for(tmp_path: Path) -> None:
    with Store(str(tmp_path / "data")) as opened:
        opened.create_topic("orders", 1)
        opened.partition("orders", 0).append([Record(value=b"v", timestamp_ms=T0)])
    assert gone(objects("-n", tmp_path / "data")) == [("orders", 0)]
    assert gone(objects(tmp_path / "data")) == [("orders", 0)]


def test_lines(store: Path) -> None:
    lines = retain("-n", "-t", "plain", "--retention-bytes", 1_100_000, "--retention-ms", -1, store).stdout.splitlines()
    assert lines[0].split() == ["partition", "base_offset", "end_offset", "bytes", "policy", "why"]
    assert lines[1].startswith("plain-0              0        3229  1,045,518  retention.bytes")
    assert lines[-1] == "1 segment of 1 partition would be deleted, 1021 KiB would be freed; 1 partition checked"
    lines = retain("-n", "-t", "plain", "--retention-ms", -1, store).stdout.splitlines()
    assert lines[-1] == "no segment expires, 0 B would be freed; 1 partition checked"
    assert retain("-q", "-n", store).stdout == ""


def test_a_directory_in_use(store: Path) -> None:
    lock = LocalFileSystem().lock(str(store / ".lock"))
    try:
        retain(store, code=1)
        retain("--dry-run", store)
    finally:
        lock.release()


def test_wrong_usage(store: Path, tmp_path: Path) -> None:
    retain(tmp_path / "missing", code=1)
    assert not (tmp_path / "missing").exists()
    retain("--retention-ms", -2, store, code=2)
    assert "no topic orders" in retain("-n", "-t", "orders", store, code=1).stderr
    assert "no partition 4 of plain" in retain("-n", "-t", "plain", "-p", 4, store, code=1).stderr
    assert "one partition" in retain(store / "plain-0", code=1).stderr


def test_what_topics_have_set_must_be_known(tmp_path: Path) -> None:
    with Store(str(tmp_path / "data")) as opened:
        opened.create_topic("kept", 1, {"retention.ms": -1})
        opened.partition("kept", 0).append([Record(value=b"v", timestamp_ms=T0)])
    shutil.rmtree(tmp_path / "data" / "__cluster_metadata-0")
    before = contents(tmp_path)
    assert "give --retention-ms" in retain(tmp_path / "data", code=1).stderr
    assert any("give --retention-ms" in row.get("note", "") for row in objects("-n", tmp_path / "data"))
    assert contents(tmp_path) == before
    assert gone(objects("--retention-ms", 1000, tmp_path / "data")) == [("kept", 0)]


def test_the_error_of_damaged_metadata_names_the_repair(store: Path) -> None:
    (log,) = (store / "__cluster_metadata-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    told = retain(store, code=1).stderr
    assert f"duralog repair --dry-run {store} --topic __cluster_metadata shows what can be done" in told
