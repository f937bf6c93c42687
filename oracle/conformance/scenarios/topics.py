"""Making, growing, trimming and deleting topics."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.discovery import NO_SUCH_ID, known
from oracle.conformance.wire import Fields


def topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas} | fields


def assigned(*replicas: list[int], first: int = 0) -> dict[str, Any]:
    """A topic whose replicas are given one by one."""
    placed = [{"partition_index": first + number, "broker_ids": ids} for number, ids in enumerate(replicas)]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": placed}


def in_order(answer: Fields) -> Fields:
    """Kafka answers in the order of a hash table."""
    return answer | {"topics": sorted(answer["topics"], key=lambda each: str(each["name"]))}


def create(dialog: Dialog, version: int, *topics: dict[str, Any], **fields: Any) -> Fields:
    pending = dialog.on().send("create_topics", version, topics=list(topics), timeout=30_000, **fields)
    answer = pending.take()
    pending.write_down(in_order(answer))
    return answer


@each_version(2, 7)
def create_topics(dialog: Dialog, version: int) -> None:
    name = dialog.name
    create(dialog, version, topic(name, 3))
    create(dialog, version, topic(name, 3))
    create(dialog, version, topic(f"{name}-a"), topic(f"{name}-b", configs=[{"name": "retention.ms", "value": "1000"}]))
    create(dialog, version, topic(f"{name}-c"), topic(f"{name}-c"))
    create(dialog, version, topic(f"{name}-d", 2), validate_only=True)
    create(dialog, version, topic(f"{name}-e", -1, -1))
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (-1, 1)):
        create(dialog, version, topic(f"{name}-f{partitions}{replicas}", partitions, replicas))
    create(dialog, version, topic(f"{name}-g", configs=[{"name": "no.such.config", "value": "1"}]))
    create(dialog, version, topic(f"{name}-h", configs=[{"name": "retention.ms", "value": "soon"}]))
    create(dialog, version, topic(f"{name}-i", configs=[{"name": "retention.ms", "value": None}]))
    create(dialog, version, topic(f"{name}-j", configs=[{"name": "cleanup.policy", "value": "compact,delete"}]))
    create(dialog, version, topic(f"{name}-k", configs=[{"name": "segment.bytes", "value": "1"}]))
    create(dialog, version, topic(f"{name}-l", configs=[{"name": "max.message.bytes", "value": "-1"}]))
    create(dialog, version)


@scenario
def create_topics_with_bad_names(dialog: Dialog) -> None:
    for name in ("", ".", "..", "a/b", "x" * 250, "sn\N{SNOWMAN}w", "a b", "__cluster_metadata", "tab\t"):
        create(dialog, 7, topic(name))
        create(dialog, 5, topic(name), validate_only=True)
    create(dialog, 7, topic("x" * 249))
    create(dialog, 7, topic("conformance.collides_with"))
    create(dialog, 7, topic("conformance_collides.with"))
    create(dialog, 7, topic("conformance-one.two"), topic("conformance-one_two"))


@scenario
def create_topics_with_placed_replicas(dialog: Dialog) -> None:
    name = dialog.name
    create(dialog, 7, {"name": f"{name}-a"} | assigned([1], [1]))
    create(dialog, 7, {"name": f"{name}-b"} | assigned([1], [2]))
    create(dialog, 7, {"name": f"{name}-c"} | assigned([1, 1]))
    create(dialog, 7, {"name": f"{name}-d"} | assigned([]))
    create(dialog, 7, {"name": f"{name}-e"} | assigned([1], first=1))
    create(dialog, 7, {"name": f"{name}-f"} | assigned([1], [1]) | {"num_partitions": 2})
    create(dialog, 7, {"name": f"{name}-g"} | assigned([1], [1]) | {"replication_factor": 1})
    twice = {"partition_index": 0, "broker_ids": [1]}
    create(dialog, 7, {"name": f"{name}-h"} | assigned() | {"assignments": [twice, twice]})
    create(dialog, 7, {"name": f"{name}-i"} | assigned([-1]))


@each_version(1, 6)
def delete_topics(dialog: Dialog, version: int) -> None:
    name = dialog.name
    ids = [dialog.create_topic(f"{name}-{letter}") for letter in "abcdef"]

    def delete(*names: str, **fields: Any) -> None:
        request = {"topic_names": list(names), "topics": [{"name": each} for each in names]} | fields
        pending = dialog.on().send("delete_topics", version, timeout=30_000, **request)
        answer = pending.take()
        found = sorted(answer["responses"], key=lambda each: (str(each["name"]), each["error_code"]))
        pending.write_down(answer | {"responses": found})

    delete(f"{name}-a")
    delete(f"{name}-a")
    delete(f"{name}-b", f"{name}-missing", "a/b")
    delete(f"{name}-c", f"{name}-c")
    delete()
    if version >= 6:
        delete(topics=[{"name": None, "topic_id": ids[3]}])
        delete(topics=[{"name": None, "topic_id": ids[3]}])
        delete(topics=[{"name": None, "topic_id": NO_SUCH_ID}])
        delete(topics=[{"name": None, "topic_id": UUID(int=0)}])
        delete(topics=[{"name": f"{name}-e", "topic_id": ids[4]}])
        delete(topics=[{"name": f"{name}-f"}, {"name": None, "topic_id": ids[5]}])
    for letter in "ab":
        dialog.eventually(
            lambda answer: all(each["error_code"] == 3 for each in answer["topics"]),
            "metadata", 9, topics=[{"name": f"{name}-{letter}"}],
        )  # fmt: skip


@scenario
def delete_internal_topics(dialog: Dialog) -> None:
    """Nothing protects them but access rights."""
    dialog.ask("delete_topics", 6, topics=[{"name": "__cluster_metadata"}], timeout=30_000)


@each_version(0, 3)
def create_partitions(dialog: Dialog, version: int) -> None:
    name = dialog.name
    for letter in "abc":
        dialog.create_topic(f"{name}-{letter}", 2)

    def grow(*topics: tuple[str, int, Any], **fields: Any) -> None:
        asked = [{"name": each, "count": count, "assignments": placed} for each, count, placed in topics]
        pending = dialog.on().send("create_partitions", version, topics=asked, timeout=30_000, **fields)
        answer = pending.take()
        found = sorted(answer["results"], key=lambda each: (each["name"], each["error_code"]))
        pending.write_down(answer | {"results": found})

    grow((f"{name}-a", 3, None))
    grow((f"{name}-a", 3, None))
    grow((f"{name}-a", 2, None))
    grow((f"{name}-a", 0, None))
    grow((f"{name}-a", -1, None))
    grow((f"{name}-missing", 3, None), (f"{name}-b", 4, None))
    grow((f"{name}-b", 5, None), (f"{name}-b", 6, None))
    grow((f"{name}-b", 9, None), validate_only=True)
    grow((f"{name}-c", 4, [{"broker_ids": [1]}, {"broker_ids": [1]}]))
    grow((f"{name}-c", 6, [{"broker_ids": [1]}]))
    grow((f"{name}-c", 5, [{"broker_ids": [7]}]))
    grow((f"{name}-c", 5, [{"broker_ids": []}]))
    grow((f"{name}-c", 5, [{"broker_ids": [1, 1]}]))
    grow((f"{name}-c", 5, []))
    grow(("a/b", 5, None))
    grow()
    dialog.eventually(
        lambda answer: [len(each["partitions"]) for each in answer["topics"]] == [3, 4, 4],
        "metadata", 9, topics=[{"name": f"{name}-{letter}"} for letter in "abc"],
    )  # fmt: skip


@each_version(0, 2)
def delete_records(dialog: Dialog, version: int) -> None:
    name = dialog.name
    dialog.create_topic(name, 2)
    for _ in range(3):
        dialog.write(name, 0, 4)

    def trim(*topics: tuple[str, list[tuple[int, int]]]) -> None:
        asked = [
            {"name": each, "partitions": [{"partition_index": index, "offset": offset} for index, offset in partitions]}
            for each, partitions in topics
        ]
        pending = dialog.on().send("delete_records", version, topics=asked, timeout=30_000)
        answer = pending.take()
        for each in answer["topics"]:
            each["partitions"].sort(key=lambda partition: partition["partition_index"])
        pending.write_down(in_order(answer))

    trim((name, [(0, 5)]))
    trim((name, [(0, 3)]))
    trim((name, [(0, 13)]))
    trim((name, [(0, -2)]))
    trim((name, [(0, 6), (1, 0)]))
    trim((name, [(7, 0)]), (f"{name}-missing", [(0, 0)]))
    trim((name, [(0, -1)]), (name, [(1, -1)]))
    trim((name, []))
    trim()
    asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": when} for when in (-2,)]}]
    dialog.ask("list_offsets", 5, replica_id=-1, topics=asked)


@scenario
def delete_records_of_a_compacted_topic(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name, cleanup_policy="compact")
    dialog.write(name, 0, 4)
    dialog.ask("delete_records", 2, topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": 1}]}])
    dialog.eventually(known, "metadata", 12, topics=[{"name": "__consumer_offsets"}], allow_auto_topic_creation=True)
    offsets = [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}]
    dialog.ask("delete_records", 2, topics=offsets, timeout=30_000)
