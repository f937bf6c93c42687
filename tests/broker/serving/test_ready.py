"""Ready means ready: the port opens when the kernels of appends are loaded, and not at all if they cannot be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from duralog.broker import broker as module
from duralog.broker.broker import Broker
from duralog.errors import MissingExtra


def test_the_port_opens_when_the_kernels_are_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(str(tmp_path))
    refused = []

    def compile_for_long() -> None:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.address.host, broker.address.port), timeout=10)
        refused.append(broker.address)

    monkeypatch.setattr(module, "warm_up", compile_for_long)
    with broker:
        assert refused == [broker.address]
        socket.create_connection((broker.address.host, broker.address.port), timeout=10).close()


def test_kernels_that_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MissingExtra("for a test", "numba", extra="numba")

    monkeypatch.setattr(module, "warm_up", fail)
    with pytest.raises(MissingExtra, match="duralog needs numba"):
        Broker(str(tmp_path)).open()
    monkeypatch.undo()
    # Nothing stayed open.
    with Broker(str(tmp_path)):
        pass
