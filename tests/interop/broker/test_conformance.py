"""The broker answers every request as Kafka does: same scenarios to both, transcripts compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import oracle.conformance.scenarios  # noqa: F401
from oracle.conformance.coordinators import wait_for_coordinators
from oracle.conformance.deliberate import MEANT
from oracle.conformance.dialog import Dialog
from oracle.conformance.normal_form import Address
from oracle.conformance.scenario import SCENARIOS, Difference, differences
from oracle.conformance.scenarios.hostile import VERSIONS
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop


SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "log.retention.ms": -1,  # The records are dated 2023.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


@dataclass
class SideBySide:
    """Both servers, and what came of each scenario; each runs once."""

    kafka: Address
    duralog: Address
    _dialogs: dict[str, tuple[Dialog, Dialog]] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def dialogs(self, name: str) -> tuple[Dialog, Dialog]:
        if name not in self._dialogs:
            assert name not in self._begun, f"{name} broke off"
            self._begun.add(name)
            scenario = SCENARIOS[name]
            self._dialogs[name] = scenario.run(self.kafka), scenario.run(self.duralog)
        return self._dialogs[name]

    def differences(self, name: str) -> list[Difference]:
        kafka, duralog = self.dialogs(name)
        return list(differences(name, kafka.transcript, duralog.transcript))


@pytest.fixture(scope="module")
def servers(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    folder: Path = tmp_path_factory.mktemp("conformance")
    format_directory(kafka, folder / "kafka")
    with (
        KafkaServer(kafka, folder / "kafka", configs=SETTINGS) as server,
        ServedDirectory(folder / "duralog", configs=SETTINGS) as broker,
    ):
        server.topics()
        for address in (server.address, broker.address):
            wait_for_coordinators(address)
        yield SideBySide(server.address, broker.address)


@pytest.mark.parametrize("name", SCENARIOS)
def test_duralog_answers_as_kafka_does(servers: SideBySide, name: str) -> None:
    found = [each for each in servers.differences(name) if not any(meant.covers(each) for meant in MEANT)]
    assert not found, "\n".join(map(str, found))
    assert servers.dialogs(name)[0].transcript


def test_every_version_of_every_api_is_asked(servers: SideBySide) -> None:
    asked = set().union(*(servers.dialogs(name)[0].versions_asked for name in SCENARIOS))
    promised = {(api, version) for api, (first, last) in VERSIONS.items() for version in range(first, last + 1)}
    assert promised - asked == set()


def test_every_deliberate_difference_is_one(servers: SideBySide) -> None:
    """What no longer differs leaves the list."""
    found = [each for name in SCENARIOS for each in servers.differences(name)]
    assert [meant for meant in MEANT if not any(meant.covers(each) for each in found)] == []
