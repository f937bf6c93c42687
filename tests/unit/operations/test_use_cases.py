"""Use cases return values, report progress by one protocol, and print nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.config.progress import Progress
from duralog.operations.chosen_partition import Choice
from duralog.operations.compact import CompactRequest, compact
from duralog.operations.compacted_logs import LogsToCompact, NotCompacted, PartitionProgress
from duralog.operations.explain import ExplainRequest, explain
from duralog.operations.repair import RepairRequest, repair
from duralog.operations.retain import RetainRequest, RetentionUnknown, retain
from duralog.operations.verify import VerifyRequest, verify
from duralog.reports.compact import PartitionCompaction
from tests.support.compaction.compacted_directory import CompactedDirectory, fill

NOW_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    directory = CompactedDirectory(tmp_path / "data")
    with directory.open() as store:
        fill(directory.log(store, "orders"))
        fill(directory.log(store, "events", cleanup_policy="delete"))
    return str(directory.path)


def test_compact_and_explain(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    shown: list[Progress] = []
    done: list[PartitionCompaction] = []
    told = explain(ExplainRequest(logs=LogsToCompact(path=path), now_ms=NOW_MS), on_progress=shown.append)
    report = compact(CompactRequest(logs=LogsToCompact(path=path)), on_progress=shown.append, on_partition=done.append)
    assert (told.totals.partitions, told.not_compacted) == (1, 1)
    assert (report.totals()["compacted"], report.not_compacted, report.is_well) == (1, 1, True)
    assert report.partitions == done
    (orders,) = done
    assert orders.report is not None
    assert orders.before is not None
    assert orders.after is not None
    assert (orders.report.records_before, orders.report.records_after) == (30, 5)
    assert orders.after.size_bytes < orders.before.size_bytes
    labels = {progress.label for progress in shown if isinstance(progress, PartitionProgress)}
    assert labels == {"orders-0 reading", "orders-0 mapping", "orders-0 rewriting"}
    assert all(progress.total is None or progress.done <= progress.total for progress in shown)
    assert capfd.readouterr() == ("", "")


def test_a_topic_that_is_not_compacted_is_refused(path: str) -> None:
    logs = LogsToCompact(path=path, choice=Choice(["events"]))
    with pytest.raises(NotCompacted, match=r"events is not compacted, its cleanup\.policy is delete"):
        compact(CompactRequest(logs=logs))


def test_verify_and_repair(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    verified = verify(VerifyRequest(path=path, choice=Choice(["orders"])))
    assert verified.is_sound
    assert [report.name for report in verified.partitions] == ["orders-0"]
    repaired = repair(RepairRequest(path=path, dry_run=True))
    assert repaired.is_well
    assert all(partition.is_sound for partition in repaired.repairs)
    assert capfd.readouterr() == ("", "")


def test_retention_that_is_not_known_deletes_nothing(path: str) -> None:
    metadata = Path(path) / "__cluster_metadata-0"
    metadata.rename(metadata.with_name("elsewhere"))
    with pytest.raises(RetentionUnknown):
        retain(RetainRequest(path=path, now_ms=NOW_MS))
