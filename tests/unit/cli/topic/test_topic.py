"""`duralog topic`: topics of a directory that Kafka made, and of a new one."""

from __future__ import annotations

import io
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import duralog
from duralog.cli.topic.topics_of_broker import write_list
from duralog.cli.voice.output import Output
from duralog.client.topics import TopicView
from duralog.command_line import app
from duralog.config.entries import TOPIC_SOURCE, Value
from duralog.errors import TopicExists
from duralog.format.record import Record
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.metadata.changes import alter_topic_configs
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.metadata_log import encode_batch
from duralog.storage.store import Store
from tests.support import commands
from tests.support.places import GOLDEN

topic = partial(commands.run, "topic")


objects = partial(commands.objects, "topic")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def configs(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {config["name"]: (config["value"], config["source"]) for config in rows[0]["configs"]}


def test_the_newest_record_is_not_the_time_of_an_empty_segment(new: Path) -> None:
    with duralog.open(new) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        log.append([Record(value=b"x", timestamp_ms=1_700_000_000_000)])
        log.roll()
    _, partition = objects("describe", new)
    assert partition["newest_timestamp"] == 1_700_000_000_000
    assert partition["segments"] == 2


def test_topics_of_kafka() -> None:
    rows = {row["topic"]: row for row in objects("list", GOLDEN / "store")}
    assert len(rows) == 9
    assert rows["plain"] == {
        "kind": "topic",
        "topic": "plain",
        "topic_id": "kbHEQbtORkGagHr8-qLv1w",
        "partitions": 1,
        "offsets": 6001,
        "bytes": 2_245_084,
        "configs": {"index.interval.bytes": "4096", "segment.bytes": "1048576"},
    }
    assert rows["codecs"]["partitions"] == 5
    assert rows["trimmed"]["offsets"] == 5000 - 3456


def test_a_description() -> None:
    head, partition = objects("describe", GOLDEN / "store", "--topic", "trimmed")
    assert head["partitions"] == [0]
    assert configs([head])["segment.bytes"] == ("1048576", "topic")
    assert partition["start_offset"] == 3456
    assert (partition["end_offset"], partition["segments"], partition["bytes"]) == (5000, 2, 1_429_273)


def test_where_configs_come_from(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=48\n")
    arguments = ("describe", GOLDEN / "store", "-t", "plain", "--all", "--server-properties", properties)
    head = objects(*arguments)[0]
    found = {config["name"]: config for config in head["configs"]}
    assert found["retention.ms"] == {
        "name": "retention.ms",
        "value": "172800000",
        "source": "broker",
        "set_as": "log.retention.hours",
    }
    assert found["flush.ms"]["source"] == "default"
    lines = topic(*arguments).stdout
    assert "broker: log.retention.hours" in lines
    assert "flush.ms" not in topic("describe", GOLDEN / "store", "-t", "plain").stdout


def test_lines() -> None:
    lines = topic("list", GOLDEN / "store").stdout.splitlines()
    assert lines[0].split() == ["topic", "id", "partitions", "offsets", "bytes", "configs"]
    assert lines[-1] == "9 topics"
    lines = topic("describe", GOLDEN / "store", "-t", "txn").stdout.splitlines()
    assert lines[0] == "txn: 1 partition, 688 KiB, id vXh7nl6VSZOthgscaSgc5A"
    assert lines[2].split()[:6] == ["0", "0", "2480", "2480", "2", "704,621"]
    assert "index.interval.bytes  1024     topic" in lines


def test_a_folder_of_partition_folders() -> None:
    rows = objects("list", GOLDEN / "legacy")
    assert len(rows) == 12
    assert rows[0]["topic_id"] is None


def test_an_alteration_that_cannot_be_changes_nothing(new: Path) -> None:
    topic("create", new, "-t", "orders", "--partitions", 2)
    result = topic("alter", new, "-t", "orders", "-c", "retention.ms=1000", "--partitions", 2, code=1)
    assert "orders has 2 partitions; it can only get more, not 2" in result.stderr
    assert configs(objects("describe", new, "-t", "orders")) == {
        "min.insync.replicas": ("1", "dynamic broker"),
    }


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_an_offline_partition_is_reported_once(new: Path, options: tuple[str, ...]) -> None:
    topic("create", new, "-t", "orders", "--partitions", 2)
    (new / "orders-1" / "partition.metadata").write_text("nonsense")
    (new / "orders-5").mkdir()
    (new / "orders-5" / f"{0:020}.log").touch()
    told = topic("create", new, "-t", "other", *options).stderr.splitlines()
    assert sorted(line.partition(" is offline: ")[0] for line in told) == [
        "duralog: error: orders-1",
        "duralog: error: orders-5",
    ]


def test_an_empty_log_has_no_newest_record(new: Path) -> None:
    topic("create", new, "-t", "orders")
    described = objects("describe", new, "-t", "orders")
    assert [row["newest_timestamp"] for row in described if row["kind"] == "partition"] == [None]


def test_names_from_a_disk_do_not_move_the_cursor(new: Path) -> None:
    topic("create", new, "-t", "orders")
    with Store(str(new)) as store:
        metadata = ClusterMetadata.load(None, [store.partition("__cluster_metadata", 0).read_slice(0).read()])
        changes = alter_topic_configs(metadata, "orders", {"\x1b[2Jx": "1"})
        batch = encode_batch(changes, metadata.next_offset, metadata.writing_epoch, 1)
        store.partition("__cluster_metadata", 0).append_batches(batch, origin=AppendOrigin.AS_IS)
    described = topic("describe", new, "-t", "orders").output
    assert "there is no topic config \\x1b[2Jx" in described
    assert "\x1b" not in described


def test_create_describe_alter_delete(new: Path) -> None:
    created = objects("create", new, "-t", "orders", "--partitions", 3, "-c", "cleanup.policy=compact,delete")[0]
    assert (created["kind"], created["partitions"]) == ("created", 3)
    with Store(str(new)) as store:
        assert store.topic_id("orders") == created["topic_id"]
        store.partition("orders", 1).append([Record(key=b"k", value=b"v")])
    rows = objects("describe", new, "-t", "orders")
    assert rows[0]["topic_id"] == created["topic_id"]
    assert [row["end_offset"] for row in rows[1:]] == [0, 1, 0]
    assert configs(rows)["cleanup.policy"] == ("compact,delete", "topic")

    rows = objects(
        "alter", new, "-t", "orders", "-c", "retention.ms=1000", "--delete-config", "cleanup.policy", "--partitions", 4
    )
    assert configs(rows)["retention.ms"] == ("1000", "topic")
    assert "cleanup.policy" not in configs(rows)
    assert len(rows[0]["partitions"]) == 4
    told = topic("alter", new, "-t", "orders", "-c", "retention.ms=1000").output
    assert told.startswith("orders: 4 partitions, ")
    assert "retention.ms" in told
    assert "end_offset" not in told
    assert configs(objects("describe", new, "-t", "orders"))["retention.ms"] == ("1000", "topic")

    assert objects("delete", new, "-t", "orders", "--yes")[0]["partitions"] == 4
    assert objects("list", new) == []
    assert not list(new.glob("orders*"))
    assert CliRunner().invoke(app, ["verify", "-q", str(new)]).exit_code == 0


def test_deleting_asks_first(new: Path) -> None:
    topic("create", new, "-t", "orders")
    assert "--yes" in topic("delete", new, "-t", "orders", code=2).output
    assert [row["topic"] for row in objects("list", new)] == ["orders"]


def test_a_directory_of_kafka_is_changed_in_place(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", store, ignore=shutil.ignore_patterns("*.gz"))
    topic("create", store, "-t", "fresh", "--partitions", 2)
    topic("delete", store, "-t", "plain", "--yes")
    names = [row["topic"] for row in objects("list", store)]
    assert "fresh" in names
    assert "plain" not in names
    assert CliRunner().invoke(app, ["verify", "-q", str(store)]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "-t", "bad/name"], "ASCII letters"),
        (["create", "-t", "orders"], "already"),
        (["create", "-t", "x", "-c", "segment.bytes=5"], "at least 1048576"),
        (["create", "-t", "x", "-c", "segment.byte=5"], "no topic config segment.byte"),
        (["alter", "-t", "orders", "-c", "retention.ms=soon"], "retention.ms"),
        (["alter", "-t", "orders", "--partitions", "1"], "partition"),
        (["alter", "-t", "gone", "-c", "retention.ms=1"], "no topic gone"),
        (["delete", "-t", "gone", "--yes"], "no topic gone"),
        (["describe", "-t", "gone"], "no topic gone"),
        (["list", "-t", "gone"], "no topic gone"),
    ],
)
def test_refusals(new: Path, arguments: list[str], told: str) -> None:
    topic("create", new, "-t", "orders", "--partitions", 1)
    result = topic(arguments[0], new, *arguments[1:], code=1)
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_wrong_usage(new: Path) -> None:
    topic("create", new, "-t", "orders")
    topic("create", new, "-t", "x", "-c", "nonsense", code=2)
    topic("alter", new, "-t", "orders", code=2)
    topic("alter", new, "-t", "orders", "-c", "retention.ms=1", "--delete-config", "retention.ms", code=2)
    topic("create", new, "-t", "x", "--partitions", 0, code=2)
    assert "no such directory" in topic("list", new / "missing", code=1).stderr


def test_a_directory_in_use(new: Path) -> None:
    topic("create", new, "-t", "orders")
    lock = LocalFileSystem().lock(str(new / ".lock"))
    try:
        topic("create", new, "-t", "more", code=1)
        assert len(objects("list", new)) == 1
    finally:
        lock.release()


@pytest.mark.parametrize("command", ["list", "describe"])
def test_a_directory_without_topics_says_how_to_make_one(new: Path, command: str) -> None:
    Store(str(new)).close()
    assert f"no topics yet. To create one: duralog topic create {new} --topic NAME" in topic(command, new).stdout
    assert objects(command, new) == []


def test_a_config_that_a_broker_does_not_show_is_null() -> None:
    view = TopicView(name="orders", topic_id="id", partitions=(), configs=[Value("secret", None, TOPIC_SOURCE)])
    stream = io.BytesIO()
    output = Output(stream, as_json=True)
    assert write_list([view], "localhost:9092", output)
    output.flush()
    assert json.loads(stream.getvalue())["configs"] == {"secret": None}


def test_a_topic_that_exists_can_be_left_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def create(*options: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, ["topic", "create", str(data), "-t", "orders", *options])
        assert result.exit_code == code, result.output
        return result

    first = json.loads(create("--partitions", "2", "--replication-factor", "1", "--json").stdout)
    again = json.loads(create("--partitions", "5", "--if-not-exists", "--json").stdout)
    assert again == {**first, "kind": "exists"}
    assert create("--if-not-exists").stdout == f"orders exists, with 2 partitions, id {first['topic_id']}\n"
    assert "exists already" in create(code=1).stderr
    assert "3 copies need 3 brokers" in " ".join(create("--replication-factor", "3", code=2).stderr.split())
    with duralog.open(str(data)) as store:
        assert store.create_topic("orders", 7, exist_ok=True) == first["topic_id"]
        store.create_topic("a.b")
        with pytest.raises(TopicExists):
            store.create_topic("a_b", exist_ok=True)
