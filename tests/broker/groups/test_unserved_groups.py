"""Share and streams groups that Kafka left in the log: kept as they are, and never overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duralog.format.internal.coordinator_records import CoordinatorRecord, encode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.message_schema import ArrayOf, Field, Struct
from tests.support import commands
from tests.support.broker.group_desk import DELETE_GROUPS, LIST_GROUPS, OFFSET_DELETE, GroupDesk

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")

NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID = 68, 69, 25
INCONSISTENT_GROUP_PROTOCOL, UNSUPPORTED_VERSION = 23, 35
CONSUMER_HEARTBEAT = 68
SESSION_MS = 45_000
SHARE_TYPES, STREAMS_TYPES = range(10, 16), (17, 19, 20, 21, 22, 23)
STREAMS_TOMBSTONES = [
    "StreamsGroupCurrentMemberAssignment",
    "StreamsGroupTargetAssignmentMember",
    "StreamsGroupTargetAssignmentMetadata",
    "StreamsGroupMemberMetadata",
    "StreamsGroupMetadata",
    "StreamsGroupTopology",
]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    """A broker that was started on a share group `s`, a streams group `k` with an offset, and a classic one."""
    with GroupDesk(tmp_path / "data") as before:
        before.with_topics(t=2)
        before.commit("k", {("t", 0): 5})
        for group_id, types in (("s", SHARE_TYPES), ("k", STREAMS_TYPES)):
            before.groups.log.append(group_id, [_encoded(type_id, group_id) for type_id in types])
        before.commit("classic", {("t", 0): 3})
    with GroupDesk(tmp_path / "data") as desk:
        yield desk


def _encoded(type_id: int, group_id: str) -> tuple[bytes, bytes | None]:
    """A record with a value of its type's own defaults."""
    kind = CONSUMER_OFFSETS_TYPES[type_id]
    key = {"group_id": group_id, "member_id": "m"}
    record = CoordinatorRecord(
        type_id=type_id,
        type_name=kind.name,
        key={field.name: key[field.name] for field in kind.key.fields},
        version=0,
        value={field.name: _plain(field) for field in kind.value.fields},
    )
    return encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record)


def _plain(field: Field) -> object:
    if field.nullable:
        return None
    if isinstance(field.type, ArrayOf):
        return []
    assert not isinstance(field.type, Struct)
    return "" if field.type == "string" else 1


def listed(desk: GroupDesk, **filters: Any) -> dict[str, tuple[str, str, str]]:
    asked = {"states_filter": [], "types_filter": [], **filters}
    groups = desk.ask(LIST_GROUPS, 5, **asked).groups
    return {each.group_id: (each.group_type, each.protocol_type, each.group_state) for each in groups}


def records_of(desk: GroupDesk) -> dict[str, list[dict[str, Any]]]:
    return {group_id: desk.records(group_id) for group_id in ("s", "k")}


def heartbeat(desk: GroupDesk, group_id: str) -> Any:
    return desk.ask(
        CONSUMER_HEARTBEAT,
        1,
        group_id=group_id,
        member_id="Ls8oWHvrTmexvJmTzKzVVQ",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=60_000,
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=[],
    )


def deleted(desk: GroupDesk, group_id: str) -> int:
    code: int = desk.ask(DELETE_GROUPS, 2, groups_names=[group_id]).results[0].error_code
    return code


def test_they_are_listed(desk: GroupDesk) -> None:
    assert listed(desk) == {
        "s": ("share", "share", "Stable"),
        "k": ("streams", "streams", "NotReady"),
        "classic": ("classic", "", "Empty"),
    }
    assert set(listed(desk, types_filter=["Share"])) == {"s"}
    assert set(listed(desk, states_filter=["notready"])) == {"k"}
    desk.pass_time(SESSION_MS)
    assert {each[2] for each in listed(desk).values()} == {"Empty"}


def test_they_are_not_overwritten(desk: GroupDesk) -> None:
    before = records_of(desk)
    for group_id in ("s", "k"):
        assert desk.join(group_id).answer.error_code == INCONSISTENT_GROUP_PROTOCOL
        answer = heartbeat(desk, group_id)
        assert (answer.error_code, answer.error_message) == (
            GROUP_ID_NOT_FOUND,
            f"Group {group_id} is not a consumer group.",
        )
        assert desk.heartbeat(group_id, "m", 1) == UNKNOWN_MEMBER_ID
        assert deleted(desk, group_id) == NON_EMPTY_GROUP
        assert desk.describe(group_id).error_code == GROUP_ID_NOT_FOUND
    assert desk.commit("s", {("t", 0): 1}) == {("t", 0): GROUP_ID_NOT_FOUND}
    assert desk.commit("k", {("t", 0): 1}) == {("t", 0): UNKNOWN_MEMBER_ID}
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    assert desk.ask(OFFSET_DELETE, 0, group_id="s", topics=topics).error_code == GROUP_ID_NOT_FOUND
    assert desk.committed("k") == {("t", 0): 5}
    assert records_of(desk) == before


def test_time_alone_takes_nothing_away(desk: GroupDesk) -> None:
    before = records_of(desk)
    desk.now_ms += 700_000  # The offsets are looked through, and have not expired.
    desk.pass_time(0)
    assert heartbeat(desk, "k").error_code == GROUP_ID_NOT_FOUND
    assert desk.join("s").answer.error_code == INCONSISTENT_GROUP_PROTOCOL
    assert deleted(desk, "s") == UNSUPPORTED_VERSION
    assert records_of(desk) == before


def test_a_classic_group_takes_the_place_of_a_streams_group_without_members(desk: GroupDesk) -> None:
    count = len(desk.records("k"))
    desk.pass_time(SESSION_MS)
    member = desk.member_id("k")
    written = [(each["type"], each["value"] is None) for each in desk.records("k")[count:]]
    assert written == [*((name, True) for name in STREAMS_TOMBSTONES), ("GroupMetadata", False)]
    desk.join("k", member)
    with desk.restarted() as again:
        assert listed(again, types_filter=["streams"]) == {}
        assert again.committed("k") == {("t", 0): 5}


def test_a_streams_group_without_members_can_be_deleted(desk: GroupDesk) -> None:
    desk.pass_time(SESSION_MS)
    assert desk.commit("k", {("t", 0): 6}) == {("t", 0): 0}
    count = len(desk.records("k"))
    assert deleted(desk, "k") == 0
    written = [each["type"] for each in desk.records("k")[count:] if each["value"] is None]
    assert written == ["OffsetCommit", *STREAMS_TOMBSTONES]
    with desk.restarted() as again:
        assert set(listed(again)) == {"s", "classic"}


run = partial(commands.run, "group")


def test_in_a_directory(desk: GroupDesk) -> None:
    desk.close()
    shown = [json.loads(line) for line in run("list", desk.path, "--json").stdout.splitlines()]
    assert {each["group"]: (each["type"], each["members"]) for each in shown} == {
        "s": ("share", 1),
        "k": ("streams", 1),
        "classic": ("classic", 0),
    }
    assert "only Kafka can change it" in run("delete", desk.path, "-g", "s", "--evict", "--yes", code=1).stderr
    run("reset", desk.path, "-g", "k", "-t", "t", "--earliest", code=1)
    run("reset", desk.path, "-g", "k", "-t", "t", "--earliest", "--evict", "--execute")
    with desk.restarted() as again:
        assert listed(again)["k"] == ("streams", "streams", "Empty")
        assert again.committed("k") == {("t", 0): 0, ("t", 1): 0}
    run("delete", desk.path, "-g", "k", "--yes")
    with desk.restarted() as again:
        assert set(listed(again)) == {"s", "classic"}
