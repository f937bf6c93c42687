"""The commands for people on a running broker: topics, records, groups."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from confluent_kafka import Uuid

import duralog
from duralog.broker.broker import Broker
from duralog.client.consuming import ConsumeRequest, from_broker
from duralog.client.topics import id_text
from duralog.format.uuids import uuid_text
from tests.support.broker.admin_desk import damage
from tests.support.commands import objects, run


@pytest.fixture
def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.address.port}"


@pytest.mark.parametrize("bits", [(-1, -1), (-(1 << 58), 1 << 58)])
def test_ids_are_written_as_on_disk(bits: tuple[int, int]) -> None:
    """The client writes them with the other alphabet of base64."""
    raw = b"".join(half.to_bytes(8, "big", signed=True) for half in bits)
    assert id_text(Uuid(*bits)) == uuid_text(raw)


def test_the_life_of_a_topic(address: str) -> None:
    (created,) = objects("topic", "create", address, "-t", "orders", "--partitions", 2, "-c", "cleanup.policy=compact")
    assert created["partitions"] == 2
    advice = f"already exists: duralog topic describe {address} shows it, topic alter changes it"
    assert advice in run("topic", "create", address, "-t", "orders", code=1).stderr
    again = ("topic", "create", address, "-t", "orders", "--if-not-exists")
    assert objects(*again, "--replication-factor", 1) == [{**created, "kind": "exists"}]
    more = ("topic", "create", address, "-t", "copies", "--replication-factor", 3)
    assert "replication factor" in run(*more, code=1).stderr.lower()
    (listed,) = objects("topic", "list", address, "-t", "orders")
    assert listed["topic_id"] == created["topic_id"]
    assert listed["configs"] == {"cleanup.policy": "compact"}
    run(
        "topic",
        "alter",
        address,
        "-t",
        "orders",
        "-c",
        "retention.ms=5000",
        "--delete-config",
        "cleanup.policy",
        "--partitions",
        3,
    )
    topic, *partitions = objects("topic", "describe", address, "-t", "orders")
    configs = {config["name"]: (config["value"], config["source"]) for config in topic["configs"]}
    assert configs["retention.ms"] == ("5000", "topic")
    assert "cleanup.policy" not in configs
    assert [partition["partition"] for partition in partitions] == [0, 1, 2]
    assert all(partition["in_sync"] == [partition["leader"]] for partition in partitions)
    assert "retention.bytes" in run("topic", "describe", address, "-t", "orders", "--all").stdout
    assert "cleanup.policy" in run("topic", "alter", address, "-t", "orders", "-c", "cleanup.policy=x", code=1).stderr
    run("topic", "delete", address, "-t", "orders", "--yes")
    assert "there is no topic orders" in run("topic", "describe", address, "-t", "orders", code=1).stderr


def test_a_partition_that_cannot_be_used(broker: Broker, address: str) -> None:
    for topic in ("t", "fine"):
        run("topic", "create", address, "-t", topic, "--partitions", 2)
        run("produce", address, "-t", topic, "-p", 0, "-v", "v")
    damage(broker, "t", 1)
    listed = run("topic", "list", address, "--json", code=1)
    assert [json.loads(line)["offsets"] for line in listed.stdout.splitlines()] == [1, 1]
    assert listed.stderr.startswith("duralog: error: t-1: it has no leader")
    described = run("topic", "describe", address, "-t", "t", code=1)
    assert [line.split()[:4] for line in described.stdout.splitlines()[2:4]] == [
        ["0", "0", "1", "1"],
        ["1", "-", "-", "-"],
    ]
    assert "t-1 has no leader" in run("consume", address, "-t", "t", code=1).stderr
    assert [each["value"] for each in objects("consume", address, "-t", "t", "-p", 0)] == ["v"]


def test_records_there_and_back(address: str) -> None:
    run("topic", "create", address, "-t", "t", "--partitions", 2)
    (written,) = objects("produce", address, "-t", "t", "-k", "k", "-v", "0xff", "-H", "h=1", "--time", "1700000000000")
    assert (written["records"], written["first_offset"], written["last_offset"]) == (1, 0, 0)
    run("produce", address, "-t", "t", "-k", "k", "--tombstone", "--codec", "zstd")
    first, second = objects("consume", address, "-t", "t")
    assert first == {
        "topic": "t",
        "partition": written["partition"],
        "offset": 0,
        "timestamp": 1700000000000,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"key": "h", "value": "1"}],
    }
    assert second["value"] is None
    assert objects("consume", address, "-t", "t", "--tail", 1) == [second]
    assert objects("consume", address, "-t", "t", "--time", "1700000000001") == [second]
    assert objects("consume", address, "-t", "t", "-p", written["partition"], "--offset", 1) == [second]
    for more in ((), ("-p", written["partition"]), ("--follow",)):
        assert "offset 9 is past the end of t-" in run("consume", address, "-t", "t", "-o", 9, *more, code=1).stderr
    assert "there is no topic no" in run("consume", address, "-t", "no", code=1).stderr
    assert "there is no partition 7" in run("consume", address, "-t", "t", "-p", 7, code=1).stderr


def test_many_lines(address: str) -> None:
    lines = "".join(f"key-{number}\tvalue-{number}\n" for number in range(5_000))
    written = objects("produce", address, "-t", "many", "--key-separator", "\t", "--codec", "lz4", given=lines)
    assert sum(row["records"] for row in written) == 5_000
    shown = run("consume", address, "-t", "many", "--values").stdout.splitlines()
    assert sorted(shown) == sorted(f"value-{number}" for number in range(5_000))
    assert len(run("consume", address, "-t", "many", "--values", "--limit", 7).stdout.splitlines()) == 7


def test_what_comes_before_a_line_that_is_no_record_is_written(address: str) -> None:
    run("topic", "create", address, "-t", "t")
    lines = '{"value": "1"}\n{"value": "2"}\nno record\n'
    refused = run("produce", address, "-t", "t", "--from-json", given=lines, code=1)
    assert "line 3: not JSON" in refused.stderr
    assert refused.stdout == "t-0: 2 records, offsets 0 to 1\n"
    assert [each["value"] for each in objects("consume", address, "-t", "t")] == ["1", "2"]


def test_a_partition_that_is_not_there(address: str) -> None:
    run("topic", "create", address, "-t", "t")
    refused = run("produce", address, "-t", "t", "-p", 7, "-v", "v", code=1)
    assert "there is no partition 7 of t" in refused.stderr
    lines = '{"value": "1", "partition": 0}\n{"value": "2", "partition": 8}\n'
    refused = run("produce", address, "-t", "t", "--from-json", given=lines, code=1)
    assert "t-8: Local: Unknown partition; 1 record written before" in refused.stderr


def test_what_a_broker_cannot_be_asked_for(address: str) -> None:
    refused = run("produce", address, "-t", "bad name", "-v", "v", code=1)
    assert "bad name: Broker: Invalid topic; 0 records written before" in refused.stderr
    assert (
        "must be from 1 to 2147483647"
        in run("topic", "create", address, "-t", "t", "--partitions", 2**31, code=1).stderr
    )
    run("topic", "create", address, "-t", "t")
    assert (
        "must be from 1 to 2147483647"
        in run("topic", "alter", address, "-t", "t", "--partitions", 2**70, code=1).stderr
    )


def test_a_time_before_all_times_is_before_all_records(address: str) -> None:
    """And not what Kafka's protocol means by -1 and -2, the ends of the log."""
    run("topic", "create", address, "-t", "t")
    run("produce", address, "-t", "t", given="1\n2\n")
    for time in ("-1", "-2", "1969-12-31"):
        assert run("consume", address, "-t", "t", "--time", time, "--values").stdout == "1\n2\n"
        assert run("group", "reset", address, "-g", "g", "-t", "t", "--time", time, "--dry-run").stdout.endswith(
            " to 0\n"
        )
    refused = run("produce", address, "-t", "t", "-v", "v", "--time", "-1", code=2)
    assert "before 1970" in refused.stderr


def test_a_record_as_large_as_the_topic_takes_it(address: str) -> None:
    run("topic", "create", address, "-t", "t", "-c", "max.message.bytes=5000000")
    large = "x" * 3_000_000
    run("produce", address, "-t", "t", given=f"small\n{large}\n")
    assert [len(each["value"]) for each in objects("consume", address, "-t", "t")] == [5, 3_000_000]
    refused = run("produce", address, "-t", "t", given=f"small\n{2 * large}\n", code=1)
    assert "Message size too large; 1 record written before" in refused.stderr


def test_without_follow_what_comes_meanwhile_is_not_waited_for(broker: Broker, address: str) -> None:
    run("topic", "create", address, "-t", "t", "--partitions", 2)
    run("produce", address, "-t", "t", "-p", 0, given="1\n2\n")
    request = ConsumeRequest(
        topics=["t"],
        partition=None,
        offset=None,
        timestamp_ms=None,
        tail=None,
        group=None,
        committed=False,
        follow=False,
    )

    def write_more(total: int) -> None:
        assert total == 2
        for number in range(2):
            broker.store.partition("t", number).append([duralog.Record(value=b"late")] * 5)

    found = from_broker(address, request, before_waiting=lambda: None, on_total=write_more)
    assert [record.value for _, _, record in found] == [b"1", b"2"]


@pytest.mark.parametrize("group", [None, "g"])
def test_a_topic_that_is_created_while_a_pattern_is_followed(
    broker: Broker, address: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duralog.client.consuming._REFRESH_SECONDS", 0)
    run("produce", address, "-t", "pay1", given="first\n")
    request = ConsumeRequest(
        topics=["pay*"],
        partition=None,
        offset=None,
        timestamp_ms=None,
        tail=None,
        group=group,
        committed=False,
        follow=True,
    )
    with closing(from_broker(address, request, before_waiting=lambda: None)) as found:
        seen = [next(found)]
        run("produce", address, "-t", "other", given="not this\n")
        run("produce", address, "-t", "pay2", given="second\n")
        seen.append(next(found))
        broker.store.partition("pay1", 0).append([duralog.Record(value=b"third")])
        seen.append(next(found))
    assert [(topic, record.value) for topic, _, record in seen] == [
        ("pay1", b"first"),
        ("pay2", b"second"),
        ("pay1", b"third"),
    ]


def test_a_group_continues_where_it_stopped(address: str) -> None:
    run("produce", address, "-t", "t", given="".join(f"{number}\n" for number in range(10)))
    seen = run("consume", address, "-t", "t", "--group", "g", "--values", "--limit", 4).stdout.splitlines()
    (group,) = objects("group", "list", address)
    assert (group["group"], group["state"], group["lag"]) == ("g", "empty", 6)
    _, offset = objects("group", "describe", address, "-g", "g")
    assert (offset["topic"], offset["committed"], offset["end_offset"]) == ("t", 4, 10)
    seen += run("consume", address, "-t", "t", "--group", "g", "--values").stdout.splitlines()
    assert seen == [str(number) for number in range(10)]
    assert "lag 0" in run("group", "describe", address).stdout


def test_a_group_commits_nothing_that_could_not_be_written(address: str) -> None:
    run("topic", "create", address, "-t", "t")
    run("produce", address, "-t", "t", given="a\nb\nc\n")
    request = ConsumeRequest(
        topics=["t"],
        partition=None,
        offset=None,
        timestamp_ms=None,
        tail=None,
        group="g",
        committed=False,
        follow=False,
    )

    def gone() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), closing(from_broker(address, request, before_waiting=gone)) as found:
        next(found)
    assert [record["value"] for record in objects("consume", address, "-t", "t", "--group", "g")] == ["a", "b", "c"]


def test_resetting_and_deleting_a_group(address: str) -> None:
    run("produce", address, "-t", "t", given="a\nb\nc\n")
    run("consume", address, "-t", "t", "--group", "g")
    (told,) = objects("group", "reset", address, "-g", "g", "-t", "t", "--earliest", "--dry-run")
    assert (told["from"], told["to"], told["dry_run"]) == (3, 0, True)
    assert objects("group", "list", address)[0]["lag"] == 0
    run("group", "reset", address, "-g", "g", "-t", "t", "--offset", 1, "--execute")
    assert run("consume", address, "-t", "t", "--group", "g", "--values").stdout == "b\nc\n"
    run("group", "reset", address, "-g", "g", "-t", "t", "--time", "2100-01-01", "--execute")
    assert objects("group", "list", address)[0]["lag"] == 0
    assert (
        "there is no topic nothing"
        in run("group", "reset", address, "-g", "g", "-t", "nothing", "--latest", code=1).stderr
    )
    run("group", "delete", address, "-g", "g", "--yes")
    assert objects("group", "list", address) == []
    assert "there is no group g" in run("group", "describe", address, "-g", "g", code=1).stderr
    run("group", "delete", address, "-g", "g", "--yes", code=1)
