"""The six log directories of a real Kafka cluster (`tests/golden/make_cluster.py`), and what consumers read from it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import duralog
from tests.support.places import ROOT

ARCHIVE = ROOT / "tests" / "golden" / "cluster.tar.xz"


def unpack(folder: Path) -> dict[str, Any]:
    """Unpack `broker-<node>/data<number>` into the folder. Returns what consumers read."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return truth


def consumed(
    truth: dict[str, Any], partition: str, isolation: str = "read_uncommitted"
) -> list[tuple[int, bytes, bytes]]:
    return [
        (record["offset"], bytes.fromhex(record["key"]), bytes.fromhex(record["value"]))
        for record in truth["read"][isolation][partition]["records"]
    ]


def scanned(paths: Any, topic: str, partition: int = 0, **options: Any) -> list[tuple[int, bytes, bytes]]:
    reader = duralog.scan(paths, topics=[topic], partition=partition, columns=["offset", "key", "value"], **options)
    return [(row["offset"], row["key"], row["value"]) for row in reader.read_all().to_pylist()]
