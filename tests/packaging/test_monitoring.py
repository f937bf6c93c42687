"""The dashboard and the alert rules name metrics that the broker has."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
import yaml  # type: ignore[import-untyped]

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address
from tests.support.places import ROOT

PACKAGING = ROOT / "packaging"


@pytest.fixture(scope="module")
def served_names() -> set[str]:
    with Broker(None, metrics=Address("127.0.0.1", 0)) as broker:
        broker.start()
        assert broker.metrics is not None
        with urllib.request.urlopen(f"http://{broker.metrics.address}/metrics", timeout=60) as answer:
            types = re.findall(r"^# TYPE (\S+) (\w+)$", answer.read().decode(), re.MULTILINE)
    return {name for name, _ in types} | {f"{name}_bucket" for name, kind in types if kind == "histogram"}


def metrics_in(expressions: list[str]) -> set[str]:
    return set(re.findall(r"\bduralog_\w+", " ".join(expressions)))


def test_the_dashboard_shows_metrics_that_exist(served_names):
    board = json.loads((PACKAGING / "grafana-dashboard.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    shown = metrics_in([target["expr"] for panel in panels for target in panel["targets"]])
    assert len(shown) > 12
    assert shown - served_names == set()


def test_the_alerts_watch_metrics_that_exist(served_names):
    rules = yaml.safe_load((PACKAGING / "alerts.yml").read_text())["groups"][0]["rules"]
    watched = metrics_in([rule["expr"] for rule in rules])
    assert len(watched) > 8
    assert watched - served_names == set()
    assert all(rule["annotations"].keys() == {"summary", "action"} for rule in rules)
