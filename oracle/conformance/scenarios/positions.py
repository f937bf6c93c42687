"""Where things are in a log: ListOffsets, OffsetForLeaderEpoch, DescribeLogDirs, DescribeProducers."""

from __future__ import annotations

from typing import Any

from duralog.format.record import Record
from oracle.conformance.dialog import TIME_MS, Dialog, records
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.producing import data, produce


def at(topic: str, *partitions: tuple[int, int], **fields: Any) -> dict[str, Any]:
    asked = [{"partition_index": index, "timestamp": timestamp} | fields for index, timestamp in partitions]
    return {"name": topic, "partitions": asked}


def list_of(dialog: Dialog, version: int, *topics: dict[str, Any], **fields: Any) -> None:
    request = {"replica_id": -1, "timeout": 30_000} | fields
    pending = dialog.on().send("list_offsets", version, topics=list(topics), **request)
    answer = pending.take()
    answer["topics"].sort(key=lambda each: str(each["name"]))  # Kafka's order is that of a hash table.
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda each: each["partition_index"])
    pending.write_down(answer)


@each_version(1, 11)
def list_offsets(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    for first in (0, 10, 5):
        produce(dialog, 9, data(topic, (0, records(4, first))))
    for special in (-1, -2, -3, -4, -5, -6, -7, -100):
        list_of(dialog, version, at(topic, (0, special), (1, special)))
    for second in (-5, 0, 2, 3, 4, 9, 11, 13, 14, 1 << 30):
        list_of(dialog, version, at(topic, (0, TIME_MS + 1000 * second)))
    list_of(dialog, version, at(topic, (0, 0)), isolation_level=1)
    list_of(dialog, version, at(topic, (0, -1)), isolation_level=1)
    list_of(dialog, version, at(f"{topic}-missing", (0, -1)), at(topic, (9, -1), (-1, -1)))
    list_of(dialog, version, at(topic, (0, -1), (0, -2)))
    list_of(dialog, version, at(topic, (0, -1)), at(topic, (1, -1)))
    list_of(dialog, version, at(topic, (0, -1)), replica_id=-2)
    list_of(dialog, version, at(topic, (0, -1)), replica_id=7)
    list_of(dialog, version)
    if version >= 4:
        for epoch in (0, 1):
            list_of(dialog, version, at(topic, (0, -1), current_leader_epoch=epoch))


@scenario
def list_offsets_of_odd_logs(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic)
    backwards = [Record(value=b"%d" % n, timestamp_ms=TIME_MS - 1000 * n) for n in range(5)]
    produce(dialog, 9, data(topic, (0, records(of=backwards))))
    for when in (TIME_MS - 4000, TIME_MS - 2500, TIME_MS, -3, -1, -2):
        list_of(dialog, 7, at(topic, (0, when)))
    dialog.ask(
        "delete_records",
        2,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}],
        timeout=30_000,
    )
    for when in (TIME_MS - 4000, TIME_MS, -3, -1, -2, -4):
        list_of(dialog, 8, at(topic, (0, when)))
    stamped = f"{topic}-stamped"
    dialog.create_topic(stamped, message_timestamp_type="LogAppendTime")
    produce(dialog, 9, data(stamped, (0, records(3))))
    for when in (TIME_MS, -3, -1, -2):
        list_of(dialog, 7, at(stamped, (0, when)))


@each_version(2, 4)
def offset_for_leader_epoch(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    dialog.write(topic, 0, 3)

    def ends(topic: str, *partitions: tuple[int, int, int], **fields: Any) -> None:
        asked = [
            {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
            for index, current, epoch in partitions
        ]
        request = {"replica_id": -1} | fields
        dialog.ask("offset_for_leader_epoch", version, topics=[{"topic": topic, "partitions": asked}], **request)

    for epoch in (0, 1, -1, -2):
        ends(topic, (0, -1, epoch), (1, -1, epoch))
    for current in (0, 1, -1):
        ends(topic, (0, current, 0))
    ends(topic, (9, -1, 0), (-1, -1, 0))
    ends(f"{topic}-missing", (0, -1, 0))
    ends(topic, (0, -1, 0), replica_id=7)
    ends(topic)
    dialog.ask("offset_for_leader_epoch", version, replica_id=-1, topics=[])


@each_version(1, 5)
def describe_log_dirs(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    dialog.write(topic, 0, 3)

    def describe(topics: list[dict[str, Any]] | None) -> None:
        pending = dialog.on().send("describe_log_dirs", version, topics=topics)
        answer = pending.take()
        for result in answer["results"]:
            result["topics"] = sorted(result["topics"], key=lambda each: str(each["name"]))
            for each in result["topics"]:
                each["partitions"].sort(key=lambda partition: partition["partition_index"])
        pending.write_down(answer)

    describe([{"topic": topic, "partitions": [0, 1]}])
    describe([{"topic": topic, "partitions": [1, 9]}, {"topic": f"{topic}-missing", "partitions": [0]}])
    describe([])
    everything = dialog.connection("").ask("describe_log_dirs", version, {"topics": None})
    found = [each for result in everything["results"] for each in result["topics"] if each["name"] == topic]
    for each in found:
        each["partitions"].sort(key=lambda partition: partition["partition_index"])
    dialog.note("all topics", found)


@scenario
def describe_producers(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    producer = dialog.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
    owner = {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]}
    produce(dialog, 9, data(topic, (0, records(3, **owner, base_sequence=0))))

    def describe(*topics: tuple[str, list[int]]) -> None:
        asked = [{"name": name, "partition_indexes": partitions} for name, partitions in topics]
        dialog.ask("describe_producers", 0, topics=asked)

    describe((topic, [0, 1]))
    describe((topic, [1, 0, 0]), (f"{topic}-missing", [0]))
    describe((topic, [9, -1]))
    describe(("a/b", [0]), ("", [0]))
    describe((topic, []))
    describe()
