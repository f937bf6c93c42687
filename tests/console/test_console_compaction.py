"""Compaction: explained as the command explains it, run from the page where that is allowed, and only there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import duralog
from bench.workers.console_process import RunningConsole
from tests.console.conftest import Stores, Visit, complaints
from tests.support.console import told_by_duralog
from tests.support.console.console_stores import KEEP_EVERYTHING, PROFILES_A_SEGMENT

PAGE = "/topic/profiles/0/compaction"


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def words(text: str) -> list[str]:
    """Without the times that are counted from now."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\(in [^)]*\)|[\d.]+ \w+ (old|ago)", "TIME", text).split()


def test_the_explanation_is_what_the_command_prints(visit: Visit, stores: Stores) -> None:
    told = told_by_duralog.command("compact", str(stores["shop"]), "--explain", "--topic", "profiles")
    tab = visit("shop", PAGE)
    expect(tab.part("explanation")).to_contain_text("profiles-0")
    shown = tab.part("explanation").inner_text()
    first = words(told.split("1 partition")[0])
    assert words(shown)[: len(first)] == first


def test_a_run_from_the_page(visit: Visit, stores: Stores, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    by_command = stores.copied("shop", tmp_path / "by-command")
    told_by_duralog.command("compact", str(by_command), "--topic", "profiles")
    with RunningConsole(str(directory), allow_changes=True) as console:
        tab = visit(console, PAGE)
        tab.part("run").click()
        tab.part("run-cancel").click()
        expect(tab.part("run-dialog")).to_be_hidden()
        tab.part("run").click()
        tab.part("run-confirm").click()
        expect(tab.part("run-result")).to_contain_text(str(3 * PROFILES_A_SEGMENT))
        again = visit(console, PAGE)
        expect(again.part("run-result")).to_contain_text(str(3 * PROFILES_A_SEGMENT))
        assert complaints(console) == []
    with duralog.open(directory, read_only=True) as ours, duralog.open(by_command, read_only=True) as theirs:
        records = [list(store.partition("profiles", 0).read(0)) for store in (ours, theirs)]
        assert records[0] == records[1]
        assert len(records[0]) < 3 * PROFILES_A_SEGMENT
    told_by_duralog.command("verify", str(directory))


def test_without_leave_nothing_can_be_changed(visit: Visit, stores: Stores) -> None:
    before = contents(stores["shop"])
    tab = visit("shop", PAGE)
    expect(tab.part("run")).to_be_hidden()
    expect(tab.part("run-command")).to_contain_text("duralog compact")
    expect(tab.part("run-command")).to_contain_text("profiles")
    assert contents(stores["shop"]) == before


def test_a_directory_that_is_being_written_to_is_left_alone(visit: Visit, stores: Stores, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    with (
        duralog.open(directory, KEEP_EVERYTHING) as store,
        RunningConsole(str(directory), allow_changes=True) as console,
    ):
        end = store.partition("profiles", 0).end_offset
        tab = visit(console, PAGE)
        expect(tab.part("run-refused")).not_to_be_empty()
        expect(tab.part("run")).to_be_hidden()
        assert len([*store.partition("profiles", 0).read(0)]) == end
        assert complaints(console) == []


@pytest.mark.parametrize("kind", ["shop", "many"])
def test_a_topic_that_is_not_compacted_says_so(visit: Visit, kind: str) -> None:
    tab = visit(kind, "/topic/orders/0/compaction")
    expect(tab.part("page-compaction")).to_contain_text("delete")
    expect(tab.part("run")).to_be_hidden()
