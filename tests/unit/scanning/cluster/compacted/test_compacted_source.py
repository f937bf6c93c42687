"""The compacted part of a partition is read from one copy: deleted keys do not come back from another one."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from duralog.operations.restore.report import RestoreRequest
from duralog.operations.restore.restore import restore
from duralog.scanning.cluster.compacted import compacted_source
from duralog.scanning.cluster.compacted.compacted_part import CompactedPart
from tests.support.cluster.cleaned import DELETED_KEY, ModelCopy
from tests.support.cluster.made import TOPIC, flip, logs
from tests.support.cluster.recorded import scanned

TABLE = {b"alive": b"a", b"other": b"o", b"mid": b"m", b"x": b"x", b"y": b"y"}


@pytest.fixture
def cleaned(tmp_path):
    """The value and its tombstone are gone."""
    return written(tmp_path / "broker-1", 1, cleaned_to=5)


@pytest.fixture
def plain(tmp_path):
    return written(tmp_path / "broker-2", 2, cleaned_to=None)


def written(directory, node_id, *, cleaned_to):
    copy = ModelCopy(DELETED_KEY, set(DELETED_KEY.records), DELETED_KEY.end)
    if cleaned_to is not None:
        copy.clean(cleaned_to, removes_tombstones=True)
    copy.write(directory, node_id, high_watermark=DELETED_KEY.end)
    return directory


def table(paths, **options):
    found = {key: value for _, key, value in scanned([str(path) for path in paths], TOPIC, **options)}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("order", "segment"), [(1, 0), (1, 1), (-1, 0), (-1, 1), (-1, 2)])
def test_a_deleted_key_does_not_come_back(cleaned, plain, order, segment, isolation):
    """The copy that counts is damaged, and the other one has more or less than what is missing."""
    chosen, _ = copies = [cleaned, plain][::order]
    flip(logs(chosen)[segment], 64)
    assert table(copies, isolation=isolation) == TABLE


def test_above_the_compacted_part_only_what_is_damaged_comes_from_the_other_copy(cleaned, plain):
    flip(logs(cleaned)[3], 64)
    assert [offset for offset, _, _ in scanned([str(cleaned), str(plain)], TOPIC)] == [0, 2, 3, 5, 6]


def test_a_compacted_part_that_no_copy_has_whole_is_read_and_reported(cleaned, plain, caplog):
    flip(logs(cleaned)[1], 64)
    flip(logs(plain)[0], 64)
    with caplog.at_level(logging.WARNING):
        offsets = [offset for offset, _, _ in scanned([str(cleaned), str(plain)], TOPIC)]
    assert offsets == [0, 2, 3, 5, 6]
    assert "orders-0: offsets 0 to 4: no copy of the compacted part is whole" in caplog.text


def test_a_restore_has_no_deleted_key(cleaned, plain, tmp_path):
    flip(logs(cleaned)[0], 64)
    report = restore(RestoreRequest(paths=[str(cleaned), str(plain)], target=str(tmp_path / "new")))
    assert report.is_made
    assert table([tmp_path / "new"]) == TABLE


def test_a_restore_without_a_whole_copy_asks_first(cleaned, plain, tmp_path):
    flip(logs(cleaned)[1], 64)
    flip(logs(plain)[0], 64)
    paths, target = [str(cleaned), str(plain)], tmp_path / "new"
    for dry_run in (True, False):
        report = restore(RestoreRequest(paths=paths, target=str(target), dry_run=dry_run))
        assert not report.is_made
        assert [(lost.first_offset, lost.last_offset) for lost in report.partitions[0].lost] == [(0, 4)]
        assert "no copy of the compacted part is whole" in report.partitions[0].lost[0].reason
    assert restore(RestoreRequest(paths=paths, target=str(target), accept_loss=True)).is_made
    assert table([target]) == TABLE


def test_what_was_found_is_remembered_until_a_file_changes(cleaned, plain, monkeypatch):
    """A stream plans a read for each of its batches."""
    copies = [cleaned, plain]
    flip(logs(cleaned)[0], 64)
    for node in copies:
        for path in logs(node):
            os.utime(path, (1_700_000_000, 1_700_000_000))
    compared = []

    def counted(*arguments: Any) -> CompactedPart:
        compared.append(arguments)
        return CompactedPart(*arguments)

    monkeypatch.setattr(compacted_source, "CompactedPart", counted)
    for _ in range(2):
        assert table(copies) == TABLE
        assert len(compared) == 1
    flip(logs(cleaned)[0], 64)
    assert [offset for offset, _, _ in scanned([str(cleaned), str(plain)], TOPIC)] == [0, 2, 3, 5, 6]
    assert len(compared) == 2
