"""The golden files, and the decoders that read them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT, OFFSET_CHECKPOINTS, PARTITION_METADATA
from tests.support.golden.decoders import DECODERS, SCANNERS, Decoded, Scanned
from tests.support.places import GOLDEN


@pytest.fixture(params=DECODERS)
def decode(request: pytest.FixtureRequest) -> Callable[[bytes], Decoded]:
    return DECODERS[request.param]


@pytest.fixture(params=SCANNERS)
def scan(request: pytest.FixtureRequest) -> Callable[[bytes], Scanned]:
    return SCANNERS[request.param]


# A test that asks for one of these runs once for each such file.
GOLDEN_FILES: dict[str, Callable[[Path], bool]] = {
    "log_with_truth": lambda path: path.suffix == ".log" and truth_of(path).exists(),
    "log_with_indexes": lambda path: path.suffix == ".log" and truth_of(path).exists() and has_indexes(path),
    "offset_index": lambda path: path.suffix == ".index" and not is_damaged(path),
    "time_index": lambda path: path.suffix == ".timeindex" and not is_damaged(path),
    "transaction_index": lambda path: path.suffix == ".txnindex",
    "producer_snapshot": lambda path: path.suffix == ".snapshot",
    "leader_epoch_checkpoint": lambda path: path.name == LEADER_EPOCH_CHECKPOINT,
    "offset_checkpoint": lambda path: path.name in OFFSET_CHECKPOINTS,
    "partition_metadata": lambda path: path.name == PARTITION_METADATA,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, is_wanted in GOLDEN_FILES.items():
        if argument in metafunc.fixturenames:
            paths = [path for path in sorted(GOLDEN.rglob("*")) if is_wanted(path)]
            assert paths, f"there is no golden file for {argument}"
            metafunc.parametrize(argument, paths, ids=[path.relative_to(GOLDEN).as_posix() for path in paths])


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of the golden data."""
    return GOLDEN


def truth_of(log: Path) -> Path:
    return log.with_name(f"{log.stem}.truth.jsonl.gz")


def has_indexes(log: Path) -> bool:
    return log.with_suffix(".index").exists() and log.with_suffix(".timeindex").exists()


def is_damaged(path: Path) -> bool:
    return "recovery" in path.relative_to(GOLDEN).parts


@pytest.fixture
def truth(log_with_truth: Path) -> list[dict[str, Any]]:
    """What Kafka's own reader saw in the log at hand."""
    with gzip.open(truth_of(log_with_truth), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
