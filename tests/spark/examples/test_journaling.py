"""A job that is killed and loses its state continues from the changelog, and its totals are exact."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog
from examples.journaling import (
    CHANGELOG,
    CLICKS,
    Change,
    Clicks,
    Journal,
    Totals,
    committed_positions,
    kill_in_the_middle,
    work,
)


def random_changes(chance: random.Random, count: int) -> list[Change]:
    users = chance.sample([f"user-{number}" for number in range(30)], count)
    return [Change(user, chance.random() < 0.2, chance.randrange(3), chance.randrange(100)) for user in users]


def test_what_was_not_committed_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the changes of a step were written, before the step was committed; again and again."""
    chance = random.Random(1)
    expected: tuple[dict[str, Totals], dict[int, int]] = ({}, {})

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for step in range(12):
        # Whatever the last step left behind, the next process finds.
        with duralog.open(tmp_path, {"log.cleaner.enable": False}) as store:
            journal = Journal(store)
            assert (journal.totals, journal.positions) == expected, step
            log = store.partition(CHANGELOG, 0)
            if step % 3 == 1:
                log.roll()
                store.compact(CHANGELOG, 0)
                assert Journal(store).totals == expected[0]
            end_offset = log.end_offset
            journal.commit(random_changes(chance, 10), {step % 2: step})
            expected = (dict(journal.totals), dict(journal.positions))
            assert log.end_offset > end_offset
            with monkeypatch.context() as patch:
                patch.setattr(log, "end_transaction", die)
                with pytest.raises(KeyboardInterrupt):
                    journal.commit(random_changes(chance, 10), {0: 1_000})
    assert len(expected[0]) > 5


def test_steps_larger_than_one_batch_are_whole(tmp_path: Path) -> None:
    changes = [Change(f"user-{number}", False, 1, number) for number in range(12_001)]
    with duralog.open(tmp_path) as store:
        Journal(store).commit(changes, {0: 7})
        again = Journal(store)
        assert again.totals == {change.user: Totals(1, change.milliseconds) for change in changes}
        assert again.starting_offsets([0, 1]) == '{"clicks": {"0": 7, "1": -2}}'


def test_several_changes_of_a_user_in_one_step(tmp_path: Path) -> None:
    with duralog.open(tmp_path) as store:
        journal = Journal(store)
        journal.commit([Change("a", False, 1, 10), Change("b", False, 1, 5), Change("a", False, 2, 20)], {0: 3})
        assert journal.totals == {"a": Totals(3, 30), "b": Totals(1, 5)}
        journal.commit([Change("a", True, 1, 7), Change("b", True, 0, 0), Change("a", False, 1, 1)], {0: 6})
        assert journal.totals == Journal(store).totals == {"a": Totals(2, 8)}


@pytest.mark.spark
@pytest.mark.since_spark("4.2")
def test_the_job_continues_where_it_stopped(tmp_path: Path, spark: SparkSession) -> None:
    """Batch after batch, with users that are forgotten, and the state read back in between."""
    paths = str(tmp_path / "clicks"), str(tmp_path / "journal")
    with duralog.open(paths[0]) as store:
        clicks = Clicks(store, seed=3, users=200)
        clicks.add(1)
        assert work(spark, *paths, until_done=True) == clicks.expected
        assert len(committed_positions(paths[1])) == 1  # Nothing is known of the other partition.
        clicks.add(1_500)
        store.partition(CLICKS, 0).roll()
        clicks.add(1_500)
        assert work(spark, *paths, until_done=True, clicks_at_once=1_000) == clicks.expected
        clicks.add(500)
        assert work(spark, *paths, until_done=True) == clicks.expected
    with duralog.open(paths[1], {"log.cleaner.enable": False}) as store:
        assert Journal(store).totals == clicks.expected
        log = store.partition(CHANGELOG, 0)
        log.roll()
        report = store.compact(CHANGELOG, 0)
        assert report.records_after < report.records_before
        assert Journal(store).totals == clicks.expected


@pytest.mark.spark
@pytest.mark.since_spark("4.2")
def test_a_killed_job_is_replaced(tmp_path: Path, spark: SparkSession) -> None:
    """SIGKILL of the process and all its children, while clicks keep coming; the changelog is compacted in between."""
    clicks_path, journal = str(tmp_path / "clicks"), str(tmp_path / "journal")
    with duralog.open(clicks_path) as store:
        clicks = Clicks(store, seed=4)
        clicks.add(8_000)
        assert kill_in_the_middle(clicks, clicks_path, journal, taken_in=2_000, at_once=1_000) >= 2_000
        clicks.add(500)
        with duralog.open(journal) as changelog:
            Journal(changelog)  # Ends what was open, so that all of it can be compacted.
            changelog.partition(CHANGELOG, 0).roll()
            report = changelog.compact(CHANGELOG, 0)
            assert report.records_after < report.records_before
        assert work(spark, clicks_path, journal, until_done=True) == clicks.expected
        ends = {number: store.partition(CLICKS, number).end_offset for number in store.partitions(CLICKS)}
        assert committed_positions(journal) == ends
