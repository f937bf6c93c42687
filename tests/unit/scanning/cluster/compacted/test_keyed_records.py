"""The records of copies by key, against plain Python."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from duralog.operations.cluster.heal import HealRequest, heal_cluster
from duralog.scanning.cluster.compacted import keyed_records
from duralog.scanning.cluster.compacted.keyed_records import RECORD, neighbours, sorted_records
from tests.support.cluster.cleaned import Damaged


def random_records(rng, count):
    found = np.zeros(count, RECORD)
    for row in found:
        row["high"], row["low"], row["offset"] = rng.randrange(3), rng.randrange(3), rng.randrange(12)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_neighbours_are_those_of_a_plain_search(seed):
    rng = Random(seed)
    records, others = (sorted_records(random_records(rng, rng.randrange(20))) for _ in range(2))
    found = neighbours(records, others)
    there = [(row["high"], row["low"], row["offset"]) for row in others]
    for place, row in enumerate(records):
        offsets = [offset for *key, offset in there if key == [row["high"], row["low"]]]
        assert found.is_there[place] == (row["offset"] in offsets)
        assert found.has_earlier[place] == any(offset < row["offset"] for offset in offsets)
        assert found.has_later[place] == any(offset > row["offset"] for offset in offsets)


def test_each_record_counts_once():
    records = random_records(Random(1), 200)
    expected = sorted({(row["high"], row["low"], row["offset"]) for row in records})
    assert [(row["high"], row["low"], row["offset"]) for row in sorted_records(records, records)] == expected


@pytest.mark.parametrize("seed", range(6))
def test_keys_that_do_not_fit_are_compared_in_shares(tmp_path, monkeypatch, seed):
    whole, shared = Damaged.random(seed, tmp_path / "whole"), Damaged.random(seed, tmp_path / "shared")
    heal_cluster(HealRequest(paths=whole.paths))
    monkeypatch.setattr(keyed_records, "_MOST_RECORDS", 20)
    heal_cluster(HealRequest(paths=shared.paths))
    assert shared.log_files() == whole.log_files()
