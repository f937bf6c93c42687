"""What groups leave in their log, what is lost when it cannot be written (nothing), and what a start finds in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.groups.offsets.commits import Committer, TopicCommit
from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey, encode_offset_key, encode_offset_value
from duralog.broker.groups.offsets.table import PartitionCommit
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.errors import StorageError
from duralog.format import batches
from duralog.format.record import Record
from tests.support.broker.group_desk import DELETE_GROUPS, START_MS, SUBSCRIBED_TO_T, GroupDesk
from tests.support.places import GOLDEN

GOLDEN_STORE = GOLDEN / "store"
NOT_COORDINATOR = 16


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2, u=1)


def break_log(desk: GroupDesk, patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    patch.setattr(desk.broker.partitions, "append_records", fail)


def test_the_records_of_a_life(desk: GroupDesk) -> None:
    member = desk.member_id("g")
    desk.pass_time(500)
    desk.join("g", member)
    desk.pass_time(100)
    desk.sync("g", member, 1, assignments={member: b"mine"})
    desk.pass_time(100)
    desk.commit("g", {("t", 1): 7}, member=member, generation=1)
    desk.leave("g", (member, None))
    records = desk.records("g")
    assert [(record["type"], record["version"]) for record in records] == [
        ("GroupMetadata", 3),
        ("GroupMetadata", 3),
        ("OffsetCommit", 4),
        ("GroupMetadata", 3),
    ]
    new, stable, commit, empty = (record["value"] for record in records)
    assert new == {
        "protocol_type": "",
        "generation": 0,
        "protocol": None,
        "leader": None,
        "current_state_timestamp": START_MS,
        "members": [],
    }
    (written,) = stable.pop("members")
    assert stable == {
        "protocol_type": "consumer",
        "generation": 1,
        "protocol": "range",
        "leader": member,
        "current_state_timestamp": START_MS + 500,
    }
    assert written["subscription"]["topics"] == ["t"]
    del written["subscription"]
    assert written == {
        "member_id": member,
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/10.0.0.7",
        "rebalance_timeout": 60_000,
        "session_timeout": 10_000,
        "assignment": "bWluZQ==",
    }
    assert (commit["offset"], commit["leader_epoch"], commit["commit_timestamp"]) == (7, 7, START_MS + 700)
    assert commit["topic_id"] == desk.broker.store.topic_id("t")
    assert (empty["generation"], empty["protocol_type"], empty["protocol"], empty["members"]) == (
        2,
        "consumer",
        None,
        [],
    )
    assert desk.ask(DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code == 0
    gone = desk.records("g")[4:]
    assert [(record["type"], record["value"]) for record in gone] == [("OffsetCommit", None), ("GroupMetadata", None)]


def test_a_group_that_cannot_be_written_is_not_made(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    break_log(desk, monkeypatch)
    assert desk.join("g").answer.error_code == NOT_COORDINATOR
    assert desk.commit("h", {("t", 0): 1}) == {("t", 0): NOT_COORDINATOR}
    assert not desk.groups.by_id
    assert desk.committed("h") == {}


def test_names_are_as_long_as_a_record_can_hold(desk: GroupDesk) -> None:
    longest = "g" * 32_767
    assert desk.commit(longest, {("t", 0): 1}) == {("t", 0): 0}
    (leader,) = desk.stable("g")
    assert desk.join("g", version=3, client_id="c" * 32_731).answer.error_code == -1
    assert desk.join("g", group_instance_id="i" * 32_731).answer.error_code == -1
    assert desk.heartbeat("g", leader, 1) == 0
    desk.join("g", version=3, client_id="c" * 32_730)
    assert len(desk.join("g", leader, version=3).answer.members) == 2
    assert desk.sync("g", leader, 2).answer.error_code == 0
    with desk.restarted() as again:
        assert set(again.groups.by_id) == {longest, "g"}


def test_an_assignment_that_cannot_be_written_is_not_sent(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (desk.member_id("g") for _ in range(2))
    for member in (first, second):
        desk.join("g", member)
    desk.pass_time(0)
    with monkeypatch.context() as failing:
        break_log(desk, failing)
        syncs = [desk.sync("g", second, 1), desk.sync("g", first, 1, assignments={first: b"1", second: b"2"})]
    assert [(sync.answer.error_code, sync.answer.assignment) for sync in syncs] == [(NOT_COORDINATOR, b"")] * 2
    assert desk.state("g") == "PreparingRebalance"
    joins = [desk.join("g", member) for member in (first, second)]
    assert [join.answer.generation_id for join in joins] == [2, 2]


def test_offsets_that_cannot_be_deleted_stay(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.commit("g", {("t", 0): 1})
    with monkeypatch.context() as failing:
        break_log(desk, failing)
        assert desk.ask(DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code == NOT_COORDINATOR
    assert desk.committed("g") == {("t", 0): 1}


def test_what_was_deleted_before_an_error_is_known_to_be_gone(
    desk: GroupDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [PartitionCommit(number, number, -1, None) for number in range(1_000)]
    desk.groups.commits.commit(Committer("g", "", None, -1, 9), [TopicCommit("t" * 249, None, many)])
    append = desk.broker.partitions.append_records
    results = iter((append, append))

    def full_after_two(*args: Any, **options: Any) -> Any:
        real = next(results, None)
        if real is None:
            raise StorageError("no space left")
        return real(*args, **options)

    with monkeypatch.context() as failing:
        failing.setattr(desk.broker.partitions, "append_records", full_after_two)
        assert desk.ask(DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code == NOT_COORDINATOR
    left = desk.committed("g")
    assert 0 < len(left) < 1_000
    with desk.crashed(tmp_path / "copy") as again:
        assert again.committed("g") == left


def test_a_partition_that_cannot_be_written_keeps_the_offsets_of_its_own_groups_alone(
    desk: GroupDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [f"g{number}" for number in range(6)]
    for group in groups:
        desk.commit(group, {("t", 0): 1})
    append, broken = desk.broker.partitions.append_records, desk.groups.log.partition_for("g0")

    def fails_for_one(topic: str, number: int, *args: Any, **options: Any) -> Any:
        if number == broken:
            raise StorageError("bad disk")
        return append(topic, number, *args, **options)

    with monkeypatch.context() as failing:
        failing.setattr(desk.broker.partitions, "append_records", fails_for_one)
        desk.delete_topic("t")
    stay = [group for group in groups if desk.groups.log.partition_for(group) == broken]
    assert [group for group in groups if desk.committed(group)] == stay != groups


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_group_after_a_restart(desk: GroupDesk, tmp_path: Path, ending: str) -> None:
    first, second = desk.stable("g", 2)
    desk.commit("g", {("t", 0): 5, ("t", 1): 6}, member=second, generation=1)
    desk.commit("g", {("t", 0): 9}, member=first, generation=1)
    before = desk.describe("g")
    again = desk.restarted() if ending == "stopped" else desk.crashed(tmp_path / "copy")
    with again:
        assert again.describe("g") == before
        assert again.committed("g") == {("t", 0): 9, ("t", 1): 6}
        again.pass_time(5000)
        assert again.heartbeat("g", first, 1) == 0
        again.pass_time(5000)
        assert again.heartbeat("g", first, 1) == 27
        assert again.join("g", first).answer.generation_id == 2
        assert again.heartbeat("g", second, 1) == 25


def test_a_killed_broker_has_every_commit_that_was_answered(desk: GroupDesk, tmp_path: Path) -> None:
    answered: dict[str, dict[tuple[str, int], int]] = {}
    for offset in range(1, 31):
        group, partition = f"g{offset % 7}", ("t", offset % 2)
        assert desk.commit(group, {partition: offset}) == {partition: 0}
        answered.setdefault(group, {})[partition] = offset
        if offset % 10 == 0:
            with desk.crashed(tmp_path / f"copy{offset}") as copy:
                assert {group: copy.committed(group) for group in answered} == answered


@pytest.mark.parametrize("codec", range(5))
def test_the_log_in_every_codec(tmp_path: Path, codec: int) -> None:
    with GroupDesk(tmp_path / "data", {"offsets.topic.compression.codec": codec}) as desk:
        desk.with_topics(t=2)
        desk.commit("g", {("t", 0): 5, ("t", 1): 6}, metadata="x" * 100)
        data = desk.partition_of("g").read_slice(0).read()
        assert [batch.codec_id for batch in batches.scan(data)] == [codec]
        with desk.crashed(tmp_path / "copy") as again:
            assert again.committed("g") == {("t", 0): 5, ("t", 1): 6}


def test_deleted_groups_and_offsets_stay_deleted(desk: GroupDesk) -> None:
    desk.commit("gone", {("t", 0): 1})
    desk.commit("kept", {("t", 0): 1, ("t", 1): 2})
    desk.ask(DELETE_GROUPS, 2, groups_names=["gone"])
    partitions = [{"partition_index": 0}]
    desk.ask(47, 0, group_id="kept", topics=[{"name": "t", "partitions": partitions}])
    with desk.restarted() as again:
        assert list(again.groups.by_id) == ["kept"]
        assert again.committed("kept") == {("t", 1): 2}


def test_a_group_that_left_the_size_limit_behind_rebalances_at_start(desk: GroupDesk) -> None:
    desk.stable("g", 3)
    desk.configs["group.max.size"] = 2
    with desk.restarted() as again:
        assert again.state("g") == "PreparingRebalance"


def test_what_kafka_has_written(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN_STORE, tmp_path / "data")
    with GroupDesk(tmp_path / "data") as desk:
        assert [*desk.groups.by_id] == ["readers"]
        group = desk.classic_group("readers")
        assert (group.group_id, group.state, group.protocol_type, group.generation) == (
            "readers",
            "Empty",
            "consumer",
            2,
        )
        assert desk.committed("readers") == {("plain", 0): 3000, ("txn", 0): 0}
        assert len(desk.groups.offsets) == 2
        assert desk.join("readers").answer.error_code == 79


def test_a_damaged_partition_costs_its_own_groups_alone(desk: GroupDesk, caplog: pytest.LogCaptureFixture) -> None:
    groups = {desk.groups.log.partition_for(f"g{number}"): f"g{number}" for number in range(20)}
    for group in groups.values():
        desk.commit(group, {("t", 0): 5})
    damaged, *others = sorted(groups)
    desk.close()
    log = desk.path / f"{CONSUMER_OFFSETS}-{damaged}" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    with GroupDesk(desk.path, desk.configs, desk.now_ms) as again:
        assert "cannot be loaded and its groups are not served" in caplog.text
        assert again.commit(groups[damaged], {("t", 0): 6}) == {("t", 0): NOT_COORDINATOR}
        assert again.join(groups[damaged]).answer.error_code == NOT_COORDINATOR
        assert again.describe(groups[damaged]).error_code == NOT_COORDINATOR
        for partition in others:
            assert again.committed(groups[partition]) == {("t", 0): 5}


def test_unknown_records_are_left_alone(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5})
    log = desk.partition_of("g")
    future = [
        Record(key=b"\0\x7fwhatever", value=b"\0\0x", timestamp_ms=START_MS),
        Record(key=b"\0\2\0\1g", value=b"\0\x63x", timestamp_ms=START_MS),
        Record(key=b"\0\1\0\1g\0\1t\0\0\0\1", value=b"\0\x63x", timestamp_ms=START_MS),
    ]
    log.append(future)
    with desk.restarted() as again:
        assert again.committed("g") == {("t", 0): 5}


def test_offsets_from_before_there_were_leader_epochs(desk: GroupDesk) -> None:
    log = desk.partition_of("g")
    values = {
        0: b"\0\0" + (10).to_bytes(8) + b"\0\1m" + START_MS.to_bytes(8),
        1: b"\0\1" + (11).to_bytes(8) + b"\0\1m" + START_MS.to_bytes(8) + (START_MS + 5000).to_bytes(8),
        2: b"\0\2" + (12).to_bytes(8) + b"\0\1m" + START_MS.to_bytes(8),
        3: b"\0\3" + (13).to_bytes(8) + (4).to_bytes(4) + b"\0\1m" + START_MS.to_bytes(8),
    }
    log.append(
        [
            Record(key=b"\0\1\0\1g\0\1t" + number.to_bytes(4), value=value, timestamp_ms=START_MS)
            for number, value in values.items()
        ]
    )
    with desk.restarted() as again:
        assert again.committed("g") == {("t", 0): 10, ("t", 1): 11, ("t", 2): 12, ("t", 3): 13}
        known = again.groups.offsets.of_group("g")["t"]
        assert {number: (each.leader_epoch, each.expire_timestamp_ms) for number, each in known.items()} == {
            0: (-1, None),
            1: (-1, START_MS + 5000),
            2: (-1, None),
            3: (4, None),
        }


def test_members_of_old_records(desk: GroupDesk) -> None:
    """Version 0 has no rebalance timeout, no instance ids and no time."""
    text = lambda value: len(value).to_bytes(2) + value  # noqa: E731
    data = lambda value: len(value).to_bytes(4) + value  # noqa: E731
    member = text(b"m") + text(b"c") + text(b"/h") + (9000).to_bytes(4) + data(SUBSCRIBED_TO_T) + data(b"a")
    value = b"\0\0" + text(b"consumer") + (4).to_bytes(4) + text(b"range") + text(b"m") + (1).to_bytes(4) + member
    desk.partition_of("g").append([Record(key=b"\0\2\0\1g", value=value, timestamp_ms=START_MS)])
    with desk.restarted() as again:
        group = again.classic_group("g")
        assert (group.state, group.generation, group.state_timestamp_ms) == ("Stable", 4, None)
        assert group.members["m"].rebalance_timeout_ms == 9000
        assert group.is_subscribed_to("t")
        assert again.heartbeat("g", "m", 4) == 0


def test_compaction_changes_nothing_but_the_size(tmp_path: Path) -> None:
    """Twice, so that tombstones and markers that have had their time are gone, too."""
    with GroupDesk(tmp_path / "data", {"log.cleaner.delete.retention.ms": 0}) as desk:
        desk.with_topics(t=2, u=1)
        groups = [f"g{number}" for number in range(6)]
        (member,) = desk.stable("g0")
        for offset in range(5):
            for group in groups[1:]:
                desk.commit(group, {("t", 0): offset, ("t", 1): offset, ("u", 0): offset})
        for group, commit in (("g1", True), ("g2", False)):
            desk.commit_in_transaction(group, {("t", 0): 50}, 50)
            desk.end_transaction(group, 50, commit=commit)
        assert desk.ask(DELETE_GROUPS, 2, groups_names=["g3"]).results[0].error_code == 0
        desk.delete_topic("u")
        desk.commit_in_transaction("g4", {("t", 0): 60}, 60)
        desk.commit("g4", {("t", 1): 7})
        before = {group: (desk.committed(group), desk.committed(group, stable=True)) for group in groups}
        count = len(desk.records())
        for _ in range(2):
            for number in desk.broker.store.partitions(CONSUMER_OFFSETS):
                desk.broker.store.partition(CONSUMER_OFFSETS, number).roll()
                desk.broker.store.compact(CONSUMER_OFFSETS, number, again=True)
            desk.now_ms += 1
        assert len(desk.records()) < count / 2
        with desk.crashed(tmp_path / "copy") as again:
            assert {group: (again.committed(group), again.committed(group, stable=True)) for group in groups} == before
            assert before["g1"][0][("t", 0)] == 50
            assert before["g4"][1][("t", 0)] == -88
            assert again.heartbeat("g0", member, 1) == 0
            again.end_transaction("g4", 60, commit=True)
            assert again.committed("g4") == {("t", 0): 60, ("t", 1): 7}


def test_what_is_in_a_partition_of_other_groups_does_not_count(
    desk: GroupDesk, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka leaves it when its topic gets more partitions. They may be read before or after the own one."""
    desk.commit("g", {("t", 0): 2})
    own = desk.groups.log.partition_for("g")
    key = encode_offset_key(OffsetKey("g", "t", 0))
    stray = encode_offset_value(CommittedOffset(1, -1, "", START_MS, None, None))
    for number in {0, 1, 2} - {own}:
        desk.broker.store.partition(CONSUMER_OFFSETS, number).append([Record(key=key, value=stray)])
    desk.commit_in_transaction("g", {("t", 1): 5}, producer_id=7)
    with desk.restarted() as again:
        assert again.committed("g") == {("t", 0): 2}
        again.end_transaction("g", 7, commit=True)
        assert again.committed("g") == {("t", 0): 2, ("t", 1): 5}
    assert caplog.text.count("1 records of groups that belong to other partitions") == 2
