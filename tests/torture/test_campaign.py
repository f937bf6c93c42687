"""A campaign finds a client that no longer gets on, and a topic that is not compacted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.torture import campaign as campaigns
from tests.torture.campaign import Campaign
from tests.torture.clients import COPIES, LATEST, SINGLES, Client, Progress, SingleClient
from tests.torture.history import History, Transaction
from tests.torture.rounds import Stage


class NotRestarted(Stage):
    def restart(self) -> None:
        self.count("restarts")


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Campaign]:
    monkeypatch.setattr(campaigns, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(campaigns, "is_available", lambda: False)
    made = Campaign(tmp_path, seed=1)
    yield made
    made._served.end()


class Steady(Progress):
    """Some clients get on whenever they are asked about."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    def of(self, client: str) -> int:
        if client in self._names:
            self.acknowledge(client)
        return super().of(client)


def test_every_client_must_get_on(campaign: Campaign) -> None:
    clients = [Client(name, {}, Progress(), 0) for name in ("lister", "reader")]
    stage = NotRestarted(campaign._served, None, Random(0))
    campaign._served.log.write_text("the log")
    campaign._progress = Steady("lister", "reader")
    campaign._wait_for_progress(stage, clients, "a round")
    assert stage.findings == []
    campaign._progress = Steady("lister")
    with pytest.raises(RuntimeError, match="reader did not get on after a round"):
        campaign._wait_for_progress(stage, clients, "a round")
    assert stage.findings == ["reader did not get on after a round: the log"] * 2
    assert stage.counts == {"restarts": 1}


@pytest.mark.parametrize(("left", "findings"), [(range(8, 10), []), (range(10), ["nothing was compacted"])])
def test_the_compacted_topic_must_have_been_compacted(campaign: Campaign, left: range, findings: list[str]) -> None:
    client = SingleClient("single", {}, Progress(), 0, History())
    client.latest_count = 10
    client.acknowledged_latest = client.sent_latest = {"k": 9}
    campaign._check_latest({LATEST: {0: [(number, b"k", str(number)) for number in left]}}, [client])
    assert campaign.report.anomalies == []
    assert [each.partition(":")[0] for each in campaign.report.findings] == findings


def test_copies_are_compared_by_partition(campaign: Campaign) -> None:
    singles: list[tuple[int, bytes | None, str]] = [(0, None, "a"), (1, None, "b")]
    campaign._check_copies({SINGLES: {0: singles, 1: singles}, COPIES: {0: singles, 1: singles[::-1]}})
    assert [(each.kind, "singles-1" in each.what) for each in campaign.report.anomalies] == [("reordered", True)]


def test_single_appends_are_no_transactions(campaign: Campaign) -> None:
    campaign._history.transactions += [Transaction("a", 0), Transaction("b", 0, is_single=True)]
    campaign._count([])
    assert (dict(campaign.report.transactions), dict(campaign.report.singles)) == ({"unknown": 1}, {"unknown": 1})
