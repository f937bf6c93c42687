"""The console with users: who gets in, as whom, and what each role may do."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import expect

import duralog
from bench.workers.console_process import RunningConsole
from duralog.broker.security.web_users import Role, password_entry, token_entry
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from duralog.storage.store import Store
from tests.console.conftest import Stores, Visit, complaints
from tests.support.broker.certificates import Authority
from tests.support.console.console_stores import PROFILES_A_SEGMENT
from tests.support.console.watched_page import WatchedPage

PASSWORD = "correct horse"
CI, TOKEN = token_entry("ci", Role.LOOK)
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
PROXY = "X-Forwarded-User"


class Guarded(RunningConsole):
    def __init__(self, folder: Path, directory: Path) -> None:
        mechanism = ScramMechanism.SCRAM_SHA_256
        with Store(str(directory)) as store:
            store.alter_scram_credentials({("ben", mechanism): ScramCredential.of_password(mechanism, PASSWORD)})
        self.directory = str(directory)
        self.users = folder / "users"
        self.lines = [
            password_entry("ana", Role.ADMINISTER, PASSWORD),
            "ben change scram",
            password_entry("eve", Role.LOOK, PASSWORD),
            CI,
            "carol look header",
        ]
        self.users.write_text("\n".join(self.lines))
        audit = folder / "audit.log"
        entry = {"time": "2026-11-16T16:26:53.026Z", "event": "change", "principal": "User:zoe", "api": "CreateTopics"}
        audit.write_text(json.dumps(entry | {"resource_type": "TOPIC", "resource": "<b>orders</b>"}) + "\n")
        signed = Authority().sign()
        certificate, key = folder / "console.crt", folder / "console.key"
        certificate.write_text(signed.certificate_pem)
        key.write_text(signed.key_pem())
        options = [*("--users", str(self.users)), *("--audit-log", str(audit))]
        options += ["--certificate", str(certificate), "--certificate-key", str(key)]
        super().__init__(str(directory), *options, "--trust-header", PROXY, allow_changes=True)


@pytest.fixture(scope="module")
def guarded(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded-console")
    with Guarded(folder, stores.copied("shop", folder / "shop")) as console:
        yield console
        assert complaints(console) == []
        assert PASSWORD not in console.log
        assert TOKEN not in console.log


def ask(
    console: RunningConsole, path: str, form: dict[str, str] | None = None, **headers: str
) -> http.client.HTTPResponse:
    return request(console, path, None if form is None else urlencode(form), headers)


def request(
    console: RunningConsole, path: str, body: str | None, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(urlsplit(console.address).netloc, timeout=60, context=context)
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        response.read()
        return response
    finally:
        connection.close()


def cookie_of(console: RunningConsole, user: str) -> str:
    answer = ask(console, "/login", {"user": user, "password": PASSWORD, "next": "/groups"})
    assert (answer.status, answer.headers["Location"]) == (303, "/groups")
    return answer.headers["Set-Cookie"]


def log_in(tab: WatchedPage, user: str) -> None:
    tab.part("login-user").fill(user)
    tab.part("login-password").fill(PASSWORD)
    tab.part("login").click()


def open_as(visit: Visit, console: Guarded, user: str, path: str) -> WatchedPage:
    tab = visit(console, path, ignore_https_errors=True, is_login=True)
    log_in(tab, user)
    tab.wait_until_alive()
    return tab


@pytest.mark.parametrize(
    "path", ["/", "/topic/orders/0/records", "/download/orders?as=csv", "/audit", "/nothing", SOCKET, "/logout"]
)
def test_nothing_is_served_without_a_user(guarded: Guarded, path: str) -> None:
    assert ask(guarded, path).status == 401
    page = ask(guarded, path, Accept="text/html")
    assert page.status == 303
    assert page.headers["Location"].startswith("/login?next=/")
    assert page.headers["content-security-policy"]


def test_a_cookie_is_for_this_host_and_no_script(guarded: Guarded) -> None:
    cookie = cookie_of(guarded, "ben")
    name, *attributes = cookie.split("; ")
    assert name.startswith("__Host-duralog=")
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Path=/"} <= set(attributes)
    assert ask(guarded, "/groups", Cookie=name).status == 200
    assert ask(guarded, "/groups", Cookie=f"{name}x").status == 401
    left = ask(guarded, "/logout", {}, Cookie=name)
    assert (left.status, left.headers["Location"]) == (303, "/login")
    assert ask(guarded, "/groups", Cookie=name).status == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_another_site_can_neither_log_in_nor_out(guarded: Guarded, origin: str) -> None:
    form = {"user": "ana", "password": PASSWORD}
    assert ask(guarded, "/login", form, Origin=origin).status == 403
    assert ask(guarded, "/logout", {}, Origin=origin).status == 403


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nX: y", ""])
def test_a_log_in_leads_nowhere_else(guarded: Guarded, path: str) -> None:
    answer = ask(guarded, "/login", {"user": "ana", "password": PASSWORD, "next": path})
    assert (answer.status, answer.headers["Location"]) == (303, "/")


def test_tokens_and_headers_of_a_proxy(guarded: Guarded) -> None:
    assert ask(guarded, "/groups", Authorization=f"Bearer {TOKEN}").status == 200
    assert ask(guarded, "/groups", Authorization="Bearer wrong").status == 401
    assert request(guarded, "/groups", None, {PROXY: "carol"}).status == 200
    assert request(guarded, "/groups", None, {PROXY: "ana"}).status == 401, "a header does not stand for a password"
    assert ask(guarded, "/audit", Authorization=f"Bearer {TOKEN}").status == 404


@pytest.mark.parametrize("body", ["x" * 10_000, "&".join(["a=b"] * 50), "user=%ff&password=%ff"])
def test_a_form_that_is_none_is_refused(guarded: Guarded, body: str) -> None:
    assert request(guarded, "/login", body, {}).status == 400


def test_a_log_in_in_the_browser(visit: Visit, guarded: Guarded) -> None:
    tab = open_as(visit, guarded, "ana", "/health")
    expect(tab.part("title")).to_have_text("Health")
    expect(tab.part("viewer")).to_have_text("ana")
    tab.part("nav-audit").click()
    expect(tab.table("audit").rows).to_have_count(1)
    assert tab.table("audit").column("principal") == ["User:zoe"]
    assert "<b>orders</b>" in tab.table("audit").column("resource")[0]
    tab.part("log-out").click()
    expect(tab.part("login")).to_be_visible()


def test_roles_look_and_change(visit: Visit, guarded: Guarded) -> None:
    path = "/topic/profiles/0/compaction"
    tab = open_as(visit, guarded, "eve", path)
    expect(tab.part("run-refused")).to_contain_text("needs the role change")
    expect(tab.part("run")).to_be_hidden()
    expect(tab.part("nav-audit")).to_have_count(0)
    other = open_as(visit, guarded, "ben", path)
    expect(other.part("nav-audit")).to_have_count(0)
    other.part("run").click()
    other.part("run-confirm").click()
    expect(other.part("run-result")).to_contain_text(str(3 * PROFILES_A_SEGMENT))


def test_each_change_needs_its_role(visit: Visit, guarded: Guarded) -> None:
    """`look` sees the command, `change` may produce, and only `administer` may delete a topic."""
    for user, opener, typed, role in (
        ("eve", "produce", {"value": "x"}, "change"),
        ("ben", "delete-topic", {"name": "profiles"}, "administer"),
    ):
        tab = open_as(visit, guarded, user, "/topic/profiles")
        tab.part(opener).click()
        if opener == "produce":
            # The topic is compacted: without a key, the preview would refuse the record.
            tab.part("change-key_form").select_option("text")
        for name, text in typed.items():
            tab.part(f"change-{name}").fill(text)
        tab.part("change-next").click()
        expect(tab.part("change-refused")).to_contain_text(f"needs the role {role}")
        expect(tab.part("change-command")).to_contain_text("profiles")
        expect(tab.part("change-confirm")).to_have_count(0)
    tab.part("change-back").click()
    tab.part("change-close").click()
    tab.part("produce").click()
    tab.part("change-key_form").select_option("text")
    tab.part("change-next").click()
    tab.part("change-confirm").click()
    expect(tab.part("change-sentence")).to_contain_text("Produced to profiles-0")
    assert "changed from the page by ben: Produced to profiles-0" in guarded.log


def test_who_is_taken_out_of_the_file_is_out(guarded: Guarded) -> None:
    cookie = cookie_of(guarded, "eve").partition(";")[0]
    guarded.users.write_text("\n".join(line for line in guarded.lines if not line.startswith("eve")))
    guarded.wait_for(lambda: ask(guarded, "/groups", Cookie=cookie).status == 401 or None)
    guarded.users.write_text("\n".join(guarded.lines))


def test_a_scram_user_with_another_password_is_out(guarded: Guarded) -> None:
    cookie = cookie_of(guarded, "ben").partition(";")[0]
    assert ask(guarded, "/groups", Cookie=cookie).status == 200
    with Store(guarded.directory) as store:
        before = dict(store.scram_credentials)
        mechanism = ScramMechanism.SCRAM_SHA_256
        store.alter_scram_credentials({("ben", mechanism): ScramCredential.of_password(mechanism, "other")})
        guarded.wait_for(lambda: ask(guarded, "/groups", Cookie=cookie).status == 401 or None)
        store.alter_scram_credentials(before)


def test_failed_log_ins_are_bounded(guarded: Guarded) -> None:
    """The last test: this address gets no further log-in for a minute."""
    form = {"user": "zed", "password": "wrong"}
    with ThreadPoolExecutor(12) as asking:
        found = [each.result().status for each in [asking.submit(ask, guarded, "/login", form) for _ in range(12)]]
    assert set(found) == {401, 429}
    assert found.count(401) <= 10
    assert ask(guarded, "/login", {"user": "ana", "password": PASSWORD}).status == 429


def test_an_address_that_others_reach_needs_users(tmp_path: Path) -> None:
    duralog.open(tmp_path).close()
    command = [sys.executable, "-m", "duralog", "console", str(tmp_path), "--listen", ":0", "--no-browser"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "give --users FILE" in refused.stderr
