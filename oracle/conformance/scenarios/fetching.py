"""Fetch: every version, sessions, limits, isolation, epochs, and offsets that are not there."""

from __future__ import annotations

import socket
from typing import Any
from uuid import UUID

from oracle.conformance.dialog import Dialog, records
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.discovery import NO_SUCH_ID
from oracle.conformance.scenarios.producing import data, produce
from oracle.conformance.wire import Fields


def wanted(topic: str | UUID, *partitions: tuple[int, int], max_bytes: int = 1 << 20, **fields: Any) -> dict[str, Any]:
    """One topic of a request: partitions with the offsets to read from."""
    named = {"topic_id": topic} if isinstance(topic, UUID) else {"topic": topic}
    return named | {
        "partitions": [
            {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes} | fields
            for partition, offset in partitions
        ]
    }


def fetch(dialog: Dialog, version: int, *topics: dict[str, Any], **fields: Any) -> Fields:
    request = {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": list(topics)} | fields
    return dialog.ask("fetch", version, **request)


@each_version(4, 18)
def fetch_some(dialog: Dialog, version: int) -> None:
    topic_id = dialog.create_topic(dialog.name, 2)
    topic: str | UUID = topic_id if version >= 13 else dialog.name
    missing: str | UUID = NO_SUCH_ID if version >= 13 else f"{dialog.name}-missing"
    for _ in range(3):
        dialog.write(dialog.name, 0, 2)
    fetch(dialog, version, wanted(topic, (0, 0)))
    fetch(dialog, version, wanted(topic, (1, 0), (0, 3)))
    fetch(dialog, version, wanted(topic, (0, 6)))
    fetch(dialog, version, wanted(topic, (0, 7)))
    fetch(dialog, version, wanted(topic, (0, -1)))
    fetch(dialog, version, wanted(topic, (9, 0), (-1, 0)))
    fetch(dialog, version, wanted(missing, (0, 0)), wanted(topic, (0, 5)))
    fetch(dialog, version, wanted(topic, (0, 0)), isolation_level=1)
    fetch(dialog, version, wanted(topic, (0, 0), max_bytes=10))
    fetch(dialog, version, wanted(topic, (0, 0), max_bytes=100))
    fetch(dialog, version, wanted(topic, (0, 0)), max_bytes=10)
    fetch(dialog, version)
    if version >= 9:
        fetch(dialog, version, wanted(topic, (0, 0), current_leader_epoch=0))
        fetch(dialog, version, wanted(topic, (0, 0), current_leader_epoch=5))
    if version >= 12:
        fetch(dialog, version, wanted(topic, (0, 6), last_fetched_epoch=0))
        fetch(dialog, version, wanted(topic, (0, 3), last_fetched_epoch=4))
        fetch(dialog, version, wanted(topic, (0, 0)), cluster_id="another")
    if version >= 13:
        fetch(dialog, version, wanted(UUID(int=0), (0, 0)))


@scenario
def fetch_limits(dialog: Dialog) -> None:
    """The first batch always comes whole; the sum of all partitions ends at the limit of the request."""
    topic = dialog.name
    dialog.create_topic(topic, 4)
    for partition in range(4):
        for _ in range(3):
            dialog.write(topic, partition, 5)
    four = [(3, 0), (1, 0), (0, 0), (2, 0)]
    for max_bytes in (0, 1, 200, 400, 800, 100_000, -1):
        fetch(dialog, 11, wanted(topic, *four), max_bytes=max_bytes)
        fetch(dialog, 11, wanted(topic, *four, max_bytes=max_bytes))


@scenario
def fetch_waits(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    dialog.write(topic, 0, 1)
    waiting = dialog.on("waiting").send(
        "fetch", 11, replica_id=-1, max_wait=30_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[wanted(topic, (0, 1), (1, 0))],
    )  # fmt: skip
    produce(dialog, 9, data(topic, (1, records(2))))
    waiting.receive()
    waiting = dialog.on("waiting").send(
        "fetch", 11, replica_id=-1, max_wait=30_000, min_bytes=150, max_bytes=1 << 20, session_epoch=-1,
        topics=[wanted(topic, (0, 1), (1, 2))],
    )  # fmt: skip
    produce(dialog, 9, data(topic, (0, records(1))))
    produce(dialog, 9, data(topic, (1, records(1))))
    waiting.receive()
    fetch(dialog, 11, wanted(topic, (0, 2)), max_wait=50, min_bytes=1)
    fetch(dialog, 11, wanted(topic, (0, 0)), max_wait=50, min_bytes=1 << 20)
    fetch(dialog, 11, wanted(topic, (0, 99), (1, 3)), max_wait=30_000, min_bytes=1)


@scenario
def fetch_of_one_that_sends_no_more(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic)
    waiting = dialog.on("ending").send(
        "fetch", 11, replica_id=-1, max_wait=30_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[wanted(topic, (0, 0))],
    )  # fmt: skip
    dialog.connection("ending").socket.shutdown(socket.SHUT_WR)
    produce(dialog, 9, data(topic, (0, records(1))))
    waiting.receive()


@scenario
def fetch_sessions(dialog: Dialog) -> None:
    topic = dialog.name
    topic_id = dialog.create_topic(topic, 3)
    for partition in range(3):
        dialog.write(topic, partition, 1)
    for version, name in ((7, topic), (12, topic), (13, topic_id), (17, topic_id)):
        whole: list[dict[str, Any]] = [wanted(name, (0, 1), (1, 1), (2, 0))]
        first = fetch(dialog, version, *whole, session_id=0, session_epoch=0)
        session = first["session_id"]
        assert session, "the server made no session"
        fetch(dialog, version, session_id=session, session_epoch=1)
        fetch(dialog, version, wanted(name, (2, 1)), session_id=session, session_epoch=2)
        fetch(dialog, version, session_id=session, session_epoch=3)
        dialog.write(topic, 1, 1)
        fetch(dialog, version, session_id=session, session_epoch=4)
        fetch(dialog, version, session_id=session, session_epoch=5)
        forgotten = {"partitions": [1]} | ({"topic_id": name} if isinstance(name, UUID) else {"topic": name})
        fetch(dialog, version, session_id=session, session_epoch=6, forgotten_topics_data=[forgotten])
        fetch(dialog, version, session_id=session, session_epoch=9)
        fetch(dialog, version, session_id=session, session_epoch=7)
        fetch(dialog, version, session_id=session + 1, session_epoch=1)
        fetch(dialog, version, wanted(name, (0, 99)), session_id=session, session_epoch=8)
        fetch(dialog, version, session_id=session, session_epoch=9)
        fetch(dialog, version, wanted(name, (0, 1)), session_id=session, session_epoch=10)
        fetch(dialog, version, wanted(name, (0, 0)), session_id=session, session_epoch=-1)
        fetch(dialog, version, session_id=session, session_epoch=11)
        fetch(dialog, version, session_id=0, session_epoch=5)
        dialog.connection("preparing").ask(
            "delete_records",
            2,
            {"topics": [{"name": topic, "partitions": [{"partition_index": 1, "offset": -1}]}], "timeout": 30_000},
        )


@scenario
def fetch_sessions_and_names(dialog: Dialog) -> None:
    """A session that began with ids does not go on with names, nor the other way round."""
    topic = dialog.name
    topic_id = dialog.create_topic(topic, 2)
    dialog.write(topic, 0, 1)
    session = fetch(dialog, 13, wanted(topic_id, (0, 0)), session_epoch=0)["session_id"]
    fetch(dialog, 12, wanted(topic, (0, 1)), session_id=session, session_epoch=1)
    session = fetch(dialog, 12, wanted(topic, (0, 0)), session_epoch=0)["session_id"]
    fetch(dialog, 13, wanted(topic_id, (0, 1)), session_id=session, session_epoch=1)
    session = fetch(dialog, 13, wanted(NO_SUCH_ID, (0, 0)), session_epoch=0)["session_id"]
    fetch(dialog, 13, session_id=session, session_epoch=1)
    session = fetch(dialog, 12, wanted(f"{topic}-missing", (0, 0)), wanted(topic, (0, 0)), session_epoch=0)[
        "session_id"
    ]
    fetch(dialog, 12, session_id=session, session_epoch=1)


@scenario
def fetch_of_a_deleted_start(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic)
    for _ in range(4):
        dialog.write(topic, 0, 2)
    partition = {"partition_index": 0, "offset": 3}
    dialog.ask("delete_records", 2, topics=[{"name": topic, "partitions": [partition]}], timeout=30_000)
    for offset in (0, 2, 3, 8, 9):
        fetch(dialog, 12, wanted(topic, (0, offset)))


@scenario
def fetch_as_a_follower(dialog: Dialog) -> None:
    """Nobody follows here."""
    topic = dialog.name
    topic_id = dialog.create_topic(topic)
    dialog.write(topic, 0, 2)
    fetch(dialog, 11, wanted(topic, (0, 0)), replica_id=7)
    fetch(dialog, 11, wanted(topic, (0, 0)), replica_id=-2)
    fetch(dialog, 15, wanted(topic_id, (0, 0)), replica_state={"replica_id": 7, "replica_epoch": 1})
    fetch(dialog, 12, wanted(topic, (0, 0)), isolation_level=3)


@scenario
def fetch_a_topic_twice(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    dialog.write(topic, 0, 2)
    fetch(dialog, 11, wanted(topic, (0, 0), (0, 1)))
    fetch(dialog, 11, wanted(topic, (0, 0)), wanted(topic, (1, 0)))
    fetch(dialog, 11, wanted(topic, (0, 0)), wanted(topic, (1, 0)), session_epoch=0)
