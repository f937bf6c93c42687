"""What a registry takes: large and many schemas, long comparisons, bodies that come in another way."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address
from duralog.broker.registry import checks, requests, room
from duralog.schemas import catalogue
from tests.support.broker.registry_client import RegistryClient, record

LOOPBACK = Address("127.0.0.1", 0)


# Room


@pytest.mark.parametrize(("limit", "value"), [("MAX_SCHEMAS", 2), ("MAX_CATALOGUE_BYTES", len('"int""long"'))])
def test_a_full_registry_refuses_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        client.register("a", '"int"')
        client.register("b", '"long"')
        monkeypatch.setattr(catalogue, limit, value)
        end = broker.store.partition("_schemas", 0).end_offset
        status, found = client.register("c", '"bytes"')
        assert (status, found["error_code"]) == (422, 42205)
        assert "full" in found["message"]
        assert broker.store.partition("_schemas", 0).end_offset == end
        assert client.register("c", '"int"')[1]["id"] == 1, "it has this schema"
        assert client.ask("DELETE", "/subjects/b")[0] == 200
        assert client.register("d", '"bytes"')[0] == 422, "it can be restored"
        assert client.ask("DELETE", "/subjects/b?permanent=true")[0] == 200
        assert client.register("d", '"null"')[1]["id"] == 3
        broker.stop()
    # What is stored loads.
    monkeypatch.setattr(catalogue, limit, 1)
    with Broker(str(tmp_path), schema_registry=LOOPBACK) as broker:
        client = RegistryClient(broker.start())
        assert client.get("/subjects") == ["a", "c", "d"]
        assert client.get("/schemas/ids/3")["schema"] == '"null"'
        assert client.ask("DELETE", "/subjects/a") == (200, [1])


def test_versions_and_configs_are_bounded(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.register("counted", '"int"')
    client.ask("PUT", "/config/counted", {"compatibility": "FULL"})
    client.ask("PUT", "/mode/counted", {"mode": "READWRITE"})
    for limit in ("MOST_VERSIONS", "MOST_CONFIGS"):
        monkeypatch.setattr(room, limit, 1)
    for method, path, body in (
        ("POST", "/subjects/one-more/versions", {"schema": '"int"'}),
        ("PUT", "/config/one-more", {"normalize": True}),
        ("PUT", "/mode/one-more", {"mode": "READONLY"}),
    ):
        assert client.ask(method, path, body)[1]["error_code"] == 42205
    assert client.register("counted", '"int"')[0] == 200
    assert client.ask("PUT", "/config/counted", {"compatibility": "NONE"})[0] == 200
    assert client.ask("DELETE", "/config/counted")[0] == 200
    assert client.ask("DELETE", "/mode/counted")[0] == 200


@pytest.mark.parametrize("characters", [1_500_000, 1_048_400])
def test_a_schema_that_is_larger_than_a_record(client: RegistryClient, characters: int) -> None:
    subject, small = f"large-{characters}", record(("a", "int"), name="Large")
    status, found = client.register(subject, small | {"doc": "x" * characters})
    assert (status, found["error_code"]) == (413, 413)
    assert "max.message.bytes" in found["message"]
    if characters > 1 << 20:
        # It is not parsed.
        body = {"schema": "{" * characters}
        for path in (f"/subjects/{subject}", f"/compatibility/subjects/{subject}/versions"):
            assert client.ask("POST", path, body)[1]["error_code"] == 413
    assert subject not in client.get("/subjects")
    assert client.register(subject, small)[0] == 200


def test_long_lists_take_several_requests(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is cut: clients would take a short one for the end of the list."""
    client.ask("PUT", "/config/:.list:", {"compatibility": "NONE"})
    for number in range(7):
        for subject in ("all", f"s{number}"):
            assert client.register(f":.list:{subject}", record((f"f{number}", "int")))[0] == 200
    paths = (
        ("/contexts/:.list:/subjects?", 60),
        ("/contexts/:.list:/schemas?latestOnly=true&", 300),
        ("/subjects/:.list:all/versions?", 60),
    )
    for path, characters in paths:
        whole = client.get(path)
        assert len(whole) == (7 if "versions" in path else 8)
        monkeypatch.setattr(requests, "_MOST_CHARACTERS_LISTED", characters)
        assert client.ask("GET", path)[1]["error_code"] == 413
        assert [each for number in range(8) for each in client.get(f"{path}offset={number}&limit=1")] == whole
        monkeypatch.undo()


def test_protobuf_without_its_compiler(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    text = 'syntax = "proto3"; message OfNoCompiler { }'
    status, found = client.register("no-compiler", text, schemaType="PROTOBUF")
    assert (status, found["error_code"]) == (501, 501)
    assert "pip install 'duralog[schemas]'" in found["message"]


# Comparisons


class Blocked:
    """Stops the first comparisons until the test lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.calls = 0
        compare, lock = checks._problems, threading.Lock()

        def blocking(*arguments: Any) -> list[str]:
            with lock:
                self.calls += 1
                is_stopped = self.calls <= count
            if is_stopped:
                self.begun.release()
                assert self.go_on.wait(60)
            return compare(*arguments)

        monkeypatch.setattr(checks, "_problems", blocking)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def first_and_next(client: RegistryClient, subject: str, pool: ThreadPoolExecutor) -> Future[Any]:
    """The first version; and the answer to a second one, whose comparison takes long."""
    assert client.register(subject, record(("a", "int")))[0] == 200
    return pool.submit(client.register, subject, record(("a", "int"), ("b", "string", "")))


def test_other_requests_do_not_wait_for_a_comparison(
    client: RegistryClient, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    blocked = Blocked(monkeypatch, 1)
    answer = first_and_next(client, "slow", pool)
    assert blocked.begun.acquire(timeout=60)
    number = client.get("/subjects/slow/versions/1")["id"]
    assert client.get(f"/schemas/ids/{number}")["schema"] == json.dumps(record(("a", "int")))
    assert client.register("quick", record(("a", "int"), name="Quick"))[0] == 200
    assert client.register("quick", record(("a", "int"), ("b", "int", 0), name="Quick"))[1]["version"] == 2
    assert client.ask("DELETE", "/subjects/quick") == (200, [1, 2])
    blocked.go_on.set()
    assert answer.result(60)[1]["version"] == 2


def test_a_subject_that_changed_meanwhile_is_compared_again(
    client: RegistryClient, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    blocked = Blocked(monkeypatch, 1)
    answer = first_and_next(client, "changed", pool)
    assert blocked.begun.acquire(timeout=60)
    assert client.register("changed", record(("a", "int"), ("b", "int", 0)))[1]["version"] == 2
    blocked.go_on.set()
    status, found = answer.result(60)
    assert (status, found["error_code"]) == (409, 409)
    assert "version 2" in found["message"]
    assert client.get("/subjects/changed/versions") == [1, 2]


def test_a_reference_that_is_deleted_meanwhile(
    client: RegistryClient, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    client.register("used", record(("x", "int"), name="Used"))
    client.register("using", record(("a", "int")))
    blocked = Blocked(monkeypatch, 1)
    references = [{"name": "Used", "subject": "used", "version": 1}]
    schema = record(("a", "int"), ("b", ["null", "Used"], None))
    answer = pool.submit(client.register, "using", schema, references=references)
    assert blocked.begun.acquire(timeout=60)
    client.ask("DELETE", "/subjects/used")
    assert client.ask("DELETE", "/subjects/used?permanent=true")[0] == 200
    blocked.go_on.set()
    status, found = answer.result(60)
    assert (status, found["error_code"]) == (422, 42201)
    assert client.get("/subjects/using/versions") == [1]


def test_too_many_comparisons(
    client: RegistryClient, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    blocked = Blocked(monkeypatch, 2)
    answers = [first_and_next(client, f"turn-{number}", pool) for number in range(2)]
    for _ in answers:
        assert blocked.begun.acquire(timeout=60)
    monkeypatch.setattr(checks, "_LONGEST_WAIT_SECONDS", 0)
    assert client.register("turn-2", '"int"')[1]["error_code"] == 429
    assert client.get("/subjects/turn-0/versions") == [1]
    assert client.register("turn-0", record(("a", "int")))[1]["version"] == 1, "it is known"
    blocked.go_on.set()
    assert [each.result(60)[1]["version"] for each in answers] == [2, 2]


def test_a_comparison_that_takes_too_long(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.register("long", '"int"')
    monkeypatch.setattr(checks, "_LONGEST_COMPARISON_SECONDS", -1)
    status, found = client.register("long", '"long"')
    assert status == 409
    assert "takes too long to compare" in found["message"]


def test_references_count_as_what_is_compared(client: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are parsed with each version."""
    client.register("base", record(("x", "int"), name="Base") | {"doc": "x" * 500_000})
    references = [{"name": "Base", "subject": "base", "version": 1}]
    client.ask("PUT", "/config/derived", {"compatibility": "NONE"})
    for number in range(40):
        made = record(("base", "Base"), (f"f{number}", "int", 0), name="Derived")
        assert client.register("derived", made, references=references)[0] == 200
    client.ask("PUT", "/config/derived", {"compatibility": "BACKWARD_TRANSITIVE"})
    status, found = client.register("derived", record(("base", "Base"), name="Derived"), references=references)
    assert status == 409
    assert "steps to compare" in found["message"]


# Bodies


def talk(client: RegistryClient, *parts: bytes) -> list[bytes]:
    """What is answered to each part of a request."""
    with socket.create_connection((client.address.host, client.address.port), timeout=60) as connection:
        found = []
        for part in parts:
            connection.sendall(part)
            found.append(connection.recv(65536))
        return found


BODY = json.dumps({"schema": '"int"'}).encode()
HEAD = b"POST /subjects/body/versions HTTP/1.1\r\nHost: localhost\r\n"


def test_a_client_that_waits_to_send_its_body(client: RegistryClient) -> None:
    """As curl does, with more than a kilobyte."""
    head = HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(BODY)
    go_on, answer = talk(client, head, BODY)
    assert go_on == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert b" 200 " in answer.splitlines()[0]
    [answer] = talk(client, HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % (1 << 40))
    assert b" 413 " in answer.splitlines()[0]


def test_a_body_in_chunks(client: RegistryClient) -> None:
    [answer] = talk(client, HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
    assert b" 411 " in answer.splitlines()[0]
