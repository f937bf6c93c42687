"""The access control lists in the browser: of a directory, of a broker with and without an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from bench.workers.console_process import RunningConsole
from duralog.config.server_settings import STANDARD_AUTHORIZER
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from duralog.storage.store import Store
from duralog.testing import TestBroker, running_broker
from tests.console.conftest import Stores, Visit, complaints
from tests.console.test_console_schemas import SCREENS
from tests.console.test_console_workbench import carry_out, fill, plan

HOSTILE = "User:<img src=x onerror=window.harmed=1>"
ACLS = [
    Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:shop", "*", Operation.WRITE, Permission.ALLOW),
    Acl(ResourceType.GROUP, "etl-", PatternType.PREFIXED, "User:etl", "10.0.0.7", Operation.READ, Permission.ALLOW),
    Acl(ResourceType.TOPIC, "*", PatternType.LITERAL, HOSTILE, "*", Operation.ALL, Permission.DENY),
    Acl(ResourceType.USER, "zoe", PatternType.LITERAL, "User:bo", "*", Operation.CREATE_TOKENS, Permission.ALLOW),
]


@pytest.fixture(scope="module")
def directory(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = stores.copied("golden", tmp_path_factory.mktemp("acls") / "data")
    with Store(str(directory)) as store:
        store.create_acls(ACLS)
    return directory


@pytest.fixture(scope="module")
def of_directory(directory: Path) -> Iterator[RunningConsole]:
    with RunningConsole(str(directory)) as console:
        yield console
        assert complaints(console) == []


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with running_broker({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}) as running:
        yield running


@pytest.fixture(scope="module")
def of_broker(broker: TestBroker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers, allow_changes=True) as console:
        yield console
        assert complaints(console) == []


@SCREENS
def test_the_entries_of_a_directory(visit: Visit, of_directory: RunningConsole, settings: Any) -> None:
    tab = visit(of_directory, "/acls", **settings)
    expect(tab.part("acls-note")).to_have_text("4 ACLs of 4 principals.")
    table = tab.table("acls")
    assert table.column("principal")[0].startswith(HOSTILE)
    expect(table.rows.filter(has_text="User:etl")).to_contain_text("etl-")
    unnamed = table.rows.filter(has_text="User:bo")
    expect(unnamed).to_contain_text("create tokens")
    expect(unnamed.get_by_role("button")).to_have_count(0)
    tab.fits_its_window()
    tab.part("acls-search").fill("write ORDERS")
    expect(table.rows).to_have_count(1)
    expect(table.rows).to_contain_text("User:shop")
    tab.page.wait_for_function("() => location.search.includes('q=write')")
    assert tab.page.evaluate("() => window.harmed") is None


def test_without_leave_the_commands_are_shown(visit: Visit, of_directory: RunningConsole, directory: Path) -> None:
    tab = visit(of_directory, "/acls?q=shop")
    tab.table("acls").rows.get_by_role("button", name="Remove the ACL of User:shop").click()
    expect(tab.part("change-refused")).to_contain_text("--allow-changes")
    expect(tab.part("change-command")).to_have_text(
        f"duralog acl remove {directory} --topic orders --operation write --allow-principal User:shop --allow-host '*'"
    )
    expect(tab.part("change-confirm")).to_have_count(0)


def test_an_entry_is_added_and_removed(visit: Visit, of_broker: RunningConsole, broker: TestBroker) -> None:
    tab = visit(of_broker, "/acls")
    expect(tab.part("acls-note")).to_have_text("0 ACLs of 0 principals.")
    fill(tab, "add-acl", principal="ana", operation="write", name="orders-", pattern="prefixed")
    tab.part("change-next").click()
    expect(tab.part("change-problem")).to_contain_text("User:ana")
    tab.part("change-principal").fill("User:ana")
    assert plan(tab) == (
        f"duralog acl add {broker.bootstrap_servers} --topic orders- --resource-pattern-type prefixed --operation write"
        " --allow-principal User:ana"
    )
    assert broker.store.acls == ()
    tab.fits_its_window()
    carry_out(tab, "Added: allow User:ana write on topic prefixed orders- from all hosts.")
    added = ACLS[0]._replace(resource_name="orders-", pattern_type=PatternType.PREFIXED, principal="User:ana")
    assert list(broker.store.acls) == [added]
    row = tab.table("acls").rows.filter(has_text="User:ana")
    expect(row).to_contain_text("prefixed")
    row.get_by_role("button").click()
    expect(tab.part("change-rows")).to_contain_text("User:ana")
    carry_out(tab, "Removed: allow User:ana write on topic prefixed orders- from all hosts.")
    expect(tab.part("acls-note")).to_have_text("0 ACLs of 0 principals.")
    assert broker.store.acls == ()


def test_a_broker_without_an_authorizer(visit: Visit) -> None:
    with running_broker() as running, RunningConsole(running.bootstrap_servers) as console:
        tab = visit(console, "/")
        tab.part("nav-acls").click()
        expect(tab.part("acls-note")).to_contain_text("SECURITY_DISABLED")
        expect(tab.part("acls-note")).to_contain_text("authorizer.class.name")
        expect(tab.part("add-acl")).to_be_hidden()
        assert complaints(console) == []
