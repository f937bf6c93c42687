"""Groups that are read in several steps, and the cleaner's figures in a broker's metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.directory import group_tracking
from duralog.console.sources.directory.source import DirectorySource
from tests.support.broker.group_desk import DELETE_GROUPS, GroupDesk
from tests.support.console.console_stores import COMMITTED, ORDERS, commit

METRICS = b"""# HELP duralog_cleanings_total Compactions that came to their end.
duralog_cleanings_total 3.0
duralog_cleaner_dirty_percent 12.5
duralog_uncleanable_partitions nan
duralog_log_bytes{topic="x"} 5.0
duralog_connections 7.0
"""


def test_a_long_topic_is_read_in_several_goes(stores: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    commit(directory, "shipping", "orders", 10)
    monkeypatch.setattr(group_tracking, "_RECORDS_AT_ONCE", 1)
    source = DirectorySource(str(directory))
    notes = [source.overview().notes]
    while notes[-1]:
        assert notes[-1] == ("The groups are still being read: there is more in __consumer_offsets.",)
        source.step()
        notes.append(source.overview().notes)
    assert len(notes) > 1
    assert source.group("billing").facts.lag == ORDERS - COMMITTED
    assert source.group("shipping").facts.lag == ORDERS - 10
    source.close()


def test_partitions_without_a_commit_are_counted_apart(stores: Any, tmp_path: Path) -> None:
    """The lag is that of committed offsets, as Kafka's tool counts it: where the group would start is not known."""
    directory = stores.copied("shop", tmp_path / "data")
    source = DirectorySource(str(directory))
    details = source.group("billing")
    assert [(row.topic, row.partition, row.records) for row in details.without_commit] == [("orders", 1, 0)]
    assert details.facts.without_commit == 0, "an empty partition holds nothing up"
    with duralog.open(directory) as store:
        store.partition("orders", 1).append([duralog.Record(value=b"x")])
    source.step()
    (facts,) = source.overview().groups
    assert (facts.lag, facts.without_commit) == (ORDERS - COMMITTED, 1)
    source.close()


def test_groups_are_not_read_again_where_nothing_came(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DirectorySource(str(stores["shop"]))
    monkeypatch.setattr(group_tracking, "read_log", lambda *_: pytest.fail("it was read again"))
    source.step()
    assert [group.name for group in source.overview().groups] == ["billing"]
    source.close()


def test_a_transaction_that_has_not_ended_hides_no_commit(tmp_path: Path) -> None:
    def committed() -> dict[tuple[str, int], int | None]:
        return {(each.topic, each.partition): each.committed for each in source.group("g").view.offsets}

    with GroupDesk(tmp_path / "data") as desk:
        desk.with_topics(t=2)
        desk.commit_in_transaction("g", {("t", 0): 50}, producer_id := 7)
        desk.commit("g", {("t", 1): 4})
        source = DirectorySource(str(desk.path))
        assert committed() == {("t", 1): 4}
        desk.end_transaction("g", producer_id, commit=True)
        source.step()
        assert committed() == {("t", 0): 50, ("t", 1): 4}
        source.close()


def test_groups_that_come_and_go_take_no_memory(tmp_path: Path) -> None:
    with GroupDesk(tmp_path / "data") as desk:
        desk.with_topics(t=1)
        source = DirectorySource(str(desk.path))
        for number in range(3):
            desk.commit(f"g{number}", {("t", 0): 1})
            desk.commit_in_transaction(f"g{number}", {("t", 0): 2}, number)
            desk.ask(DELETE_GROUPS, 2, groups_names=[f"g{number}"])
            desk.end_transaction(f"g{number}", number, commit=True)
            source.step()
            assert source.overview().groups == ()
        folded = source._tracking._folded.values()
        assert sum(len(each._last) + len(each._open) for each in folded) == 0
        source.close()


@pytest.fixture
def metrics_server() -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_cleaner_of_a_broker_is_read_from_its_metrics(stores: Any, metrics_server: HTTPServer) -> None:
    source = DirectorySource(str(stores["shop"]), metrics=CleanerMetrics(f"127.0.0.1:{metrics_server.server_port}"))
    assert source.cleaner().metrics == {"cleanings": 3.0, "cleaner_dirty_percent": 12.5}
    assert source.overview().notes == ()
    source.close()


def test_held_records_of_a_broker_are_a_note(monkeypatch: pytest.MonkeyPatch, metrics_server: HTTPServer) -> None:
    metrics = CleanerMetrics(f"127.0.0.1:{metrics_server.server_port}")
    metrics.step()
    assert metrics.held_note is None
    monkeypatch.setitem(globals(), "METRICS", b"duralog_held_records 3.0\nduralog_held_bytes 2048.0\n")
    metrics.step()
    assert str(metrics.held_note).startswith("The broker holds 3 records, 2 KiB, that were older than")
    monkeypatch.setitem(globals(), "METRICS", b"duralog_held_records 1e999\nduralog_held_bytes 1\n")
    metrics.step()
    assert metrics.held_note is None


def test_metrics_that_cannot_be_read_are_a_note(metrics_server: HTTPServer) -> None:
    metrics = CleanerMetrics(f"127.0.0.1:{metrics_server.server_port}")
    metrics.step()
    assert metrics.note is None
    for address in ("127.0.0.1:1", "file:///etc/passwd", "nonsense", "http://[", "127.0.0.1:99999"):
        metrics = CleanerMetrics(address)
        metrics.step()
        assert metrics.figures == {}
        assert "cannot be read" in str(metrics.note)
