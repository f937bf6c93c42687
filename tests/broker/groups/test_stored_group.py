"""Groups of a directory that a broker has left, changed by `duralog group`, and what the next broker finds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duralog.format.internal.internal_topics import CONSUMER_OFFSETS, describe_record
from duralog.storage.store import Store
from tests.support import commands
from tests.support.broker.group_desk import DELETE_GROUPS, GroupDesk

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")

UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND = 25, 69
CONSUMER_HEARTBEAT = 68
PRODUCER = 7


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2, u=1)


run = partial(commands.run, "group")


objects = partial(commands.objects, "group")


def consumer_heartbeat(desk: GroupDesk, member: str, epoch: int, topic: str | None = "t") -> Any:
    return desk.ask(
        CONSUMER_HEARTBEAT,
        1,
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=60_000,
        subscribed_topic_names=[] if topic is None else [topic],
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=[],
    )


def test_what_a_broker_would_write(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 4, ("u", 0): 5})
    desk.commit("other", {("t", 0): 6})
    desk.close()
    run("reset", desk.path, "-g", "g", "-t", "t", "--latest", "--execute")
    with Store(str(desk.path), read_only=True) as store:
        records = [
            describe_record(CONSUMER_OFFSETS, record.key, record.value)
            for number in store.partitions(CONSUMER_OFFSETS)
            for record in store.partition(CONSUMER_OFFSETS, number).read(0)
        ]
        topic_id = store.topic_id("t")
    found = [record for record in records if record is not None and record["key"]["group"] == "g"]
    assert [(record["type"], record["version"], record["value"]["topic_id"]) for record in found[2:]] == [
        ("OffsetCommit", 4, topic_id)
    ] * 2
    with desk.restarted() as again:
        assert again.committed("g") == {("t", 0): 0, ("t", 1): 0, ("u", 0): 5}
        assert again.committed("other") == {("t", 0): 6}


@pytest.mark.parametrize("what", ["reset", "delete"])
def test_members_who_did_not_leave(desk: GroupDesk, what: str) -> None:
    leader, follower = desk.stable("g", 2)
    desk.commit("g", {("t", 0): 4}, member=leader, generation=1)
    desk.close()
    asked = {
        "reset": ("reset", desk.path, "-g", "g", "-t", "t", "-p", 0, "--offset", 0),
        "delete": ("delete", desk.path, "-g", "g", "--yes"),
    }[what]
    execute = ("--execute",) if what == "reset" else ()
    refusal = run(*asked, *execute, code=1).stderr
    assert "has 2 members that did not leave" in refusal
    assert leader in refusal
    run(*asked, "--dry-run", code=1)
    assert objects("list", desk.path)[0]["members"] == 2
    run(*asked, "--evict", "--dry-run")
    assert objects("list", desk.path)[0]["members"] == 2
    run(*asked, *execute, "--evict")
    with desk.restarted() as again:
        assert again.committed("g") == ({("t", 0): 0} if what == "reset" else {})
        assert again.heartbeat("g", follower, 1) == UNKNOWN_MEMBER_ID
        late = again.commit("g", {("t", 0): 9}, member=leader, generation=1)
        assert late[("t", 0)] != 0
        assert again.committed("g") == ({("t", 0): 0} if what == "reset" else {})
        again.stable("g", 1)


@pytest.mark.parametrize("what", ["reset", "delete"])
def test_members_of_the_newer_protocol(desk: GroupDesk, what: str) -> None:
    joined = consumer_heartbeat(desk, "m", 0)
    assert joined.error_code == 0
    desk.close()
    asked = {
        "reset": ("reset", desk.path, "-g", "g", "-t", "t", "--earliest"),
        "delete": ("delete", desk.path, "-g", "g", "--yes"),
    }[what]
    assert "has 1 member that did not leave" in run(*asked, code=1).stderr
    execute = ("--execute",) if what == "reset" else ()
    run(*asked, *execute, "--evict")
    kinds = [(group["type"], group["members"]) for group in objects("list", desk.path)]
    assert kinds == ([("consumer", 0)] if what == "reset" else [])
    with desk.restarted() as again:
        refused = consumer_heartbeat(again, "m", joined.member_epoch)
        assert refused.error_code == (UNKNOWN_MEMBER_ID if what == "reset" else GROUP_ID_NOT_FOUND)
        assert len(again.committed("g")) == (2 if what == "reset" else 0)
        again.pass_time(2_000)
        (topic,) = consumer_heartbeat(again, "m", 0).assignment.topic_partitions
        assert topic.partitions == (0, 1)


def test_a_transaction_that_did_not_end(desk: GroupDesk) -> None:
    """What was committed beside it counts, and what is set since wins over what it commits in the end."""
    desk.commit_in_transaction("g", {("t", 0): 50, ("t", 1): 50}, PRODUCER)
    desk.commit("g", {("t", 0): 4})
    number = desk.groups.log.partition_for("g")
    beside = next(f"beside-{each}" for each in range(99) if desk.groups.log.partition_for(f"beside-{each}") == number)
    desk.commit(beside, {("t", 0): 3})
    desk.close()
    assert {group["group"]: group["partitions"] for group in objects("list", desk.path)} == {"g": 1, beside: 1}
    assert objects("reset", desk.path, "-g", "g", "-t", "t", "-p", 0, "--earliest", "--execute")[0]["from"] == 4
    with desk.restarted() as again:
        again.end_transaction("g", PRODUCER, commit=True)
        assert again.committed("g") == {("t", 0): 0, ("t", 1): 50}


def test_a_deleted_group_has_nothing_that_waits(desk: GroupDesk) -> None:
    desk.commit_in_transaction("g", {("t", 0): 50}, PRODUCER)
    desk.close()
    run("delete", desk.path, "-g", "g", "--yes")
    with desk.restarted() as again:
        assert "g" not in again.groups.by_id
        again.end_transaction("g", PRODUCER, commit=True)
        assert again.committed("g") == {}
        assert again.ask(DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code == GROUP_ID_NOT_FOUND


def test_a_group_whose_members_read_nothing_yet_is_listed(desk: GroupDesk) -> None:
    assert consumer_heartbeat(desk, "m", 0, topic=None).error_code == 0
    desk.close()
    assert [(group["group"], group["type"], group["members"]) for group in objects("list", desk.path)] == [
        ("g", "consumer", 1)
    ]
    run("delete", desk.path, "-g", "g", "--yes", "--evict")
    assert objects("list", desk.path) == []
