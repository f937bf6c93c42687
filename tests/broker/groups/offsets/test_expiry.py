"""When offsets expire, and groups with them. Time is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duralog.broker.groups.group import Group
from tests.support.broker.group_desk import START_MS, GroupDesk

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2, u=1)


def expire(desk: GroupDesk, after_ms: int) -> None:
    """Let the clock jump, and the check come that is due meanwhile."""
    desk.now_ms += after_ms
    desk.pass_time(0)


def test_offsets_of_a_group_without_members_expire_after_their_commit(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5})
    expire(desk, DAY_MS)
    desk.commit("g", {("t", 1): 6})
    expire(desk, RETENTION_MS - DAY_MS - 1)
    assert desk.committed("g") == {("t", 0): 5, ("t", 1): 6}
    expire(desk, 600_000)
    assert desk.committed("g") == {("t", 1): 6}
    expire(desk, DAY_MS)
    assert not desk.groups.by_id
    assert [record["value"] for record in desk.records("g")[-2:]] == [None, None]
    with desk.restarted() as again:
        assert not again.groups.by_id


def test_offsets_of_a_group_that_became_empty_expire_together(desk: GroupDesk) -> None:
    (member,) = desk.stable("g", session_timeout=1_800_000)
    desk.commit("g", {("t", 0): 5}, member=member, generation=1)
    desk.now_ms += 1_000_000
    desk.leave("g", (member, None))
    expire(desk, RETENTION_MS - 1)
    assert desk.committed("g") == {("t", 0): 5}
    expire(desk, 600_000)
    assert not desk.groups.by_id


def test_of_a_group_with_members_expires_what_none_reads(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    desk.commit("g", {("t", 0): 5, ("u", 0): 6}, member=member, generation=1)
    group = desk.groups.by_id["g"]
    desk.now_ms += RETENTION_MS
    desk.groups.expiry.expire(group)
    assert desk.committed("g") == {("t", 0): 5}
    assert desk.groups.by_id["g"] is group


def test_a_group_with_which_something_is_wrong_keeps_no_other_from_expiring(
    desk: GroupDesk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for group in ("a", "b", "c"):
        desk.commit(group, {("t", 0): 5})
    expire_one = desk.groups.expiry.expire

    def fails_but_for_c(group: Group) -> None:
        if group.group_id != "c":
            raise RuntimeError("unexpected")
        expire_one(group)

    with monkeypatch.context() as failing:
        failing.setattr(desk.groups.expiry, "expire", fails_but_for_c)
        expire(desk, RETENTION_MS + 600_000)
    assert [*desk.groups.by_id] == ["a", "b"]
    assert "expired offsets of group a stay" in caplog.text
    # One line for all that fail at a time.
    assert "expired offsets of group b stay" not in caplog.text
    expire(desk, 600_000)
    assert not desk.groups.by_id


def test_a_retention_time_of_its_own(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5}, version=4, retention_time=60_000)
    assert desk.records("g")[0]["version"] == 1
    assert desk.groups.offsets.of_group("g")["t"][0].expire_timestamp_ms == START_MS + 60_000
    with desk.restarted() as again:
        assert again.groups.offsets.of_group("g")["t"][0].expire_timestamp_ms == START_MS + 60_000
        expire(again, 600_000)
        assert not again.groups.by_id


def test_a_retention_time_without_end(desk: GroupDesk) -> None:
    assert desk.commit("g", {("t", 0): 5}, version=2, retention_time=2**63 - 1) == {("t", 0): 0}
    expire(desk, 2 * RETENTION_MS)
    assert desk.committed("g") == {("t", 0): 5}


def test_pending_offsets_keep_their_group(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5})
    desk.commit_in_transaction("g", {("t", 0): 6}, 50)
    expire(desk, RETENTION_MS + 600_000)
    assert desk.committed("g") == {("t", 0): 5}
    desk.end_transaction("g", 50, commit=False)
    expire(desk, 600_000)
    assert not desk.groups.by_id


def test_an_empty_group_without_offsets_goes(desk: GroupDesk) -> None:
    desk.member_id("g")
    expire(desk, 600_000)
    assert not desk.groups.by_id


def test_many_groups_are_looked_at_in_turns(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.broker.groups.group_expiry._GROUPS_PER_TURN", 3)
    for number in range(8):
        desk.commit(f"g{number}", {("t", 0): 5})
    desk.now_ms += RETENTION_MS
    desk.broker.run_pending()
    assert len(desk.groups.by_id) == 5
    desk.pass_time(0)
    assert not desk.groups.by_id
