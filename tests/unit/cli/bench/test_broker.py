"""`duralog bench` on a broker: what it measures, and that its topic is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from duralog.cli.bench.rows import Row
from tests.support import commands

bench = partial(commands.run, "bench")


objects = partial(commands.objects, "bench")


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    from duralog.testing import running_broker

    with running_broker() as running:
        yield running


def test_a_broker(broker: Any) -> None:
    rows = objects("--records", "3000", "--record-size", "64", broker.bootstrap_servers)
    produce, consume, end_to_end, summary = rows
    assert (produce["records"], consume["records"]) == (3000, 3000)
    assert produce["bytes"] == consume["bytes"] == 3000 * 64
    assert produce["latency_ms"]["count"] == 3000
    assert 0 < produce["latency_ms"]["p50"] <= produce["latency_ms"]["p99"] <= produce["latency_ms"]["max"]
    assert end_to_end["latency_ms"]["count"] > 10
    assert "limit" in summary["what_limits"]
    assert not [topic for topic in broker.store.topics() if topic.startswith("duralog-bench-")]


def test_a_broker_for_some_time(broker: Any) -> None:
    lines = bench(
        "--seconds", "0.3", "--acks", "0", "--codec", "zstd", "--record-size", "1k", broker.bootstrap_servers
    ).stdout.splitlines()
    assert lines[0].split() == ["what", "rate", "records_per_s", "seconds", "p50_ms", "p99_ms", "p99.9_ms"]
    assert lines[1].split()[0] == "produce"
    assert lines[1].split()[-3:] == ["-", "-", "-"], "nobody confirms anything without acks"
    assert not [topic for topic in broker.store.topics() if topic.startswith("duralog-bench-")]


def test_an_error_deletes_the_topic(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from duralog.cli.bench import broker as bench_broker

    def interrupted(*_: object) -> Row:
        assert [topic for topic in broker.store.topics() if topic.startswith("duralog-bench-")]
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_broker, "_consume", interrupted)
    bench("--records", "100", broker.bootstrap_servers, code=130)
    assert not [topic for topic in broker.store.topics() if topic.startswith("duralog-bench-")]


def test_an_interrupt_while_the_topic_is_made_deletes_it(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from duralog.client.topics import BrokerTopics

    create = BrokerTopics.create

    def interrupted(self: BrokerTopics, *arguments: Any) -> None:
        create(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(BrokerTopics, "create", interrupted)
    bench("--records", "100", broker.bootstrap_servers, code=130)
    assert not [topic for topic in broker.store.topics() if topic.startswith("duralog-bench-")]


def test_a_topic_that_cannot_be_deleted_is_named(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from duralog.client.topics import BrokerTopics

    delete = BrokerTopics.delete

    def interrupted(self: BrokerTopics, topic: str) -> None:
        delete(self, topic)
        raise KeyboardInterrupt

    monkeypatch.setattr(BrokerTopics, "delete", interrupted)
    assert "--topic duralog-bench-" in bench("--records", "10", broker.bootstrap_servers, code=130).stderr


def test_no_broker_there() -> None:
    assert "no broker answers" in bench("--records", "1", "127.0.0.1:1", code=1).stderr
