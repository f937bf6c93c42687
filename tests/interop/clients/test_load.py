"""Many at once: 500 connections, 200 partitions, 50 consumer groups; no error, and memory that does not grow.

For 20 seconds of work by default, for a minute in CI; `DURALOG_LOAD_SECONDS=300` for the five minutes of a release.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.interop.load_clients import Load
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

SECONDS = int(os.environ.get("DURALOG_LOAD_SECONDS", "60" if os.environ.get("CI") else "20"))
CONNECTIONS = 500
PARTITIONS = 200
GROUPS = 50
GROWTH_BYTES = 24 << 20
"""What a process may take more after the first third: caches that fill, and memory in pieces."""


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_many_clients_at_once(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}  # The records are dated 2023.
    with ServedDirectory(tmp_path / "data", configs=settings) as broker:
        load = Load(broker.address, connections=CONNECTIONS, partitions=PARTITIONS, groups=GROUPS)
        try:
            load.start()
            sizes = []
            for _ in range(3):
                load.run(until=time.monotonic() + SECONDS / 3)
                sizes.append(resident_bytes(broker.pid))
            load.finish()
        finally:
            load.close()
        assert load.errors == {}
        assert load.produced > CONNECTIONS
        assert load.consumed == load.produced
        assert load.commits > GROUPS
        assert broker.errors == []
    assert sizes[-1] - sizes[0] < GROWTH_BYTES, sizes
