"""The state of any point in time, in three ways, is what a plain list of what happened says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

import duralog
from examples.event_sourcing import (
    TOPIC,
    Account,
    Bank,
    RandomDay,
    Refused,
    history_of,
    show,
    state_by_snapshot,
    state_of,
    state_with_spark,
)

START_MS = 1_700_000_000_000
COMMANDS = {"open", "deposit", "withdraw", "close"}


class Happened(NamedTuple):
    at_ms: int
    command: str
    account: str
    cents: int


class Story(NamedTuple):
    store: duralog.Store
    path: str
    happened: list[Happened]
    bank: Bank
    end_ms: int

    def accounts_before(self, time_ms: int | None) -> dict[str, Account]:
        """By another way than the example's: sums over the list."""
        of_account: dict[str, list[Happened]] = {}
        for one in self.happened:
            if time_ms is None or one.at_ms < time_ms:
                of_account.setdefault(one.account, []).append(one)
        return {
            account: Account(
                sum(one.cents for one in ones if one.command == "deposit")
                - sum(one.cents for one in ones if one.command == "withdraw"),
                ones[-1].command != "close",
            )
            for account, ones in of_account.items()
        }


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """On a store that is live while it is read, in several segments, and with the bank started again in the middle."""
    path = tmp_path_factory.mktemp("bank") / "log"
    day = RandomDay(11, START_MS)
    happened: list[Happened] = []
    with duralog.open(path) as store:
        bank = Bank(store, day.clock)
        for number, (command, account, values) in enumerate(day.commands(3_000, names=60)):
            if number == 1_500:
                before = bank.accounts
                bank = Bank(store, day.clock)
                assert bank.accounts == before
            if number % 700 == 699:
                store.partition(TOPIC, number % 3).roll()
            try:
                getattr(bank, command)(account, *values)
            except Refused:
                continue
            happened.append(Happened(day.now_ms, command, account, *values or (0,)))
        yield Story(store, str(path), happened, bank, day.now_ms)


def moments(story: Story, count: int) -> list[int]:
    chance = random.Random(12)
    chosen = [chance.choice(story.happened).at_ms + chance.choice((0, 1)) for _ in range(count)]
    return [START_MS, story.end_ms, story.end_ms + 1, *chosen]


def test_every_kind_of_command_was_given_and_refused(story: Story) -> None:
    assert {one.command for one in story.happened} == COMMANDS
    assert 1_000 < len(story.happened) < 3_000
    assert any(not account.is_open for account in story.bank.accounts.values())


def test_the_store_has_the_state_at_any_time(story: Story) -> None:
    assert state_of(story.store) == story.bank.accounts == story.accounts_before(None)
    for time_ms in moments(story, 40):
        assert state_of(story.store, time_ms) == story.accounts_before(time_ms), time_ms


@pytest.mark.spark
def test_spark_reports_the_same(story: Story, spark: SparkSession) -> None:
    assert state_with_spark(spark, story.path) == story.accounts_before(None)
    for time_ms in moments(story, 2)[2:]:
        assert state_with_spark(spark, story.path, time_ms) == story.accounts_before(time_ms), time_ms


@pytest.mark.spark
def test_the_snapshot_job_reports_the_same(story: Story, spark: SparkSession, tmp_path: Path) -> None:
    for number, time_ms in enumerate([None, *moments(story, 2)[3:]]):
        found = state_by_snapshot(spark, story.path, str(tmp_path / str(number)), time_ms)
        assert found == story.accounts_before(time_ms), time_ms


def test_the_history_of_an_account(story: Story) -> None:
    account = story.happened[0].account
    told = [(at_ms, event.account, event.cents) for at_ms, event, _ in history_of(story.store, account)]
    assert told == [(one.at_ms, one.account, one.cents) for one in story.happened if one.account == account]
    balances = [balance for _, _, balance in history_of(story.store, account)]
    assert balances[-1] == story.bank.accounts[account].cents


def test_what_was_refused_did_not_happen(tmp_path: Path) -> None:
    with duralog.open(tmp_path) as store:
        bank = Bank(store, lambda: START_MS)
        bank.open("a")
        bank.deposit("a", 100)
        for command, values in (
            ("open", ("a",)),
            ("deposit", ("b", 1)),
            ("deposit", ("a", 0)),
            ("withdraw", ("a", 101)),
            ("withdraw", ("a", -5)),
            ("close", ("a",)),
        ):
            with pytest.raises(Refused):
                getattr(bank, command)(*values)
        assert bank.accounts == state_of(store) == {"a": Account(100, True)}
        assert sum(store.partition(TOPIC, number).end_offset for number in range(3)) == 2


def test_times_do_not_go_back(tmp_path: Path) -> None:
    times = iter([START_MS + 5, START_MS, START_MS + 9])
    with duralog.open(tmp_path) as store:
        bank = Bank(store, lambda: next(times))
        bank.open("a")
        bank = Bank(store, lambda: next(times))
        bank.deposit("a", 1)
        bank.deposit("a", 2)
        assert [at_ms for at_ms, _, _ in history_of(store, "a")] == [START_MS + 5, START_MS + 5, START_MS + 9]


@pytest.mark.spark
def test_the_example_runs(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    show(tmp_path / "data", commands=800)
    shown = capsys.readouterr().out
    assert shown.count("in the middle, by the ") == shown.count("at the end, by the ") == 3
