"""A guarded listener holds against mutated frames; one that lets the intruder do too much is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Listening
from duralog.config import BrokerConfig
from tests.torture import guard, log_ins
from tests.torture.clients import COPIES, PARTITIONS
from tests.torture.frames import Outcome
from tests.torture.log_ins import intrude


def outcomes(folder: Path, super_users: str) -> dict[str, Outcome]:
    listeners = f"PLAINTEXT://127.0.0.1:0,{guard.GUARDED}://127.0.0.1:0"
    config = BrokerConfig.of({**guard.CONFIGS, "listeners": listeners, "super.users": super_users})
    with Broker(str(folder), config=config, listening=Listening.of(config)) as broker:
        broker.start()
        plain, guarded = (f"127.0.0.1:{broker.addresses[name].port}" for name in ("PLAINTEXT", guard.GUARDED))
        admin = AdminClient({"bootstrap.servers": plain})
        for made in admin.create_topics([NewTopic(name, count) for name, count in PARTITIONS.items()]).values():
            made.result(60)
        guard.create_users(admin)
        return intrude(plain, guarded, Random(1), 12)


def test_a_guarded_listener_holds(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "User:ANONYMOUS")
    assert [each.findings for each in found.values()] == [[], [], []]
    assert [each.sent for each in found.values()] == [12, 12, 12]
    assert found["after a log-in"].answered > 0


def test_an_intruder_with_all_rights_is_found(tmp_path: Path) -> None:
    """It sees every topic, and only after its log-in."""
    found = outcomes(tmp_path, f"User:ANONYMOUS;User:{guard.INTRUDER}")
    assert [bool(each.findings) for each in found.values()] == [False, False, True]
    assert "may not see" in found["after a log-in"].findings[0]


def test_what_frames_have_changed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([{"topics: a"}, {"topics: a"}, {"topics: a"}, {"topics: b"}])
    monkeypatch.setattr(log_ins, "cluster_state", lambda _: next(states))
    monkeypatch.setattr(log_ins, "send_frames", lambda *_: Outcome(0, 0, 0, []))
    found = intrude("nowhere", "nowhere", Random(1), 0)
    assert [each.findings for each in found.values()] == [
        [],
        [],
        ["mutated frames after a log-in removed topics: a", "mutated frames after a log-in added topics: b"],
    ]


def test_the_state_of_a_cluster_has_what_is_changed(tmp_path: Path) -> None:
    config = BrokerConfig.of({**guard.CONFIGS, "listeners": f"PLAINTEXT://127.0.0.1:0,{guard.GUARDED}://127.0.0.1:0"})
    with Broker(str(tmp_path), config=config, listening=Listening.of(config)) as broker:
        broker.start()
        address = f"127.0.0.1:{broker.addresses['PLAINTEXT'].port}"
        admin = AdminClient({"bootstrap.servers": address})
        before = guard.cluster_state(address)
        admin.create_topics([NewTopic(COPIES, 1, config={"retention.ms": "7"})])[COPIES].result(60)
        made = guard.cluster_state(address)
        guard.create_users(admin)
        added = guard.differences(made, guard.cluster_state(address))
    assert f"configs: 2 {COPIES}: retention.ms=7 from 1" in made
    assert {each.split(":")[0] for each in made - before} == {"topics", "configs"}
    assert {each.split(":")[0] for each in added} == {"added acls", "added users"}
