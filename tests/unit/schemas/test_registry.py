"""A registry's REST API: all of it, some of it, and what a bad one answers. The server here is one of loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import pytest

from duralog.errors import SchemaError
from duralog.schemas import RegistrySettings, SchemaCatalogue, fetch_catalogue, fetch_ids
from duralog.schemas import registry as registry_module
from tests.support.broker.certificates import Authority
from tests.support.schemas.presence import present

Answer = tuple[int, bytes]
GUID = "8a3a5ad7-6f9e-4a4c-9d1c-1b1b1b1b1b1b"


class Registry:
    """The answers of a registry, and the requests that it got."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.has_list = True
        self.knows_pages = True
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.override: Callable[[str], Answer | None] = lambda _path: None

    def add(self, subject: str, version: int, id_: int, text: str, *, deleted: bool = False, **more: Any) -> None:
        told = {"subject": subject, "version": version, "id": id_, "schema": text, **more}
        self.versions[subject, version] = {**told, "_deleted": deleted}

    def answer(self, target: str) -> Answer:
        overridden = self.override(target)
        if overridden is not None:
            return overridden
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        steps = [unquote(step) for step in parts.path.strip("/").split("/")]
        found = self.found(steps, query)
        if found is None:
            return 404, json.dumps({"error_code": 40401, "message": "not found"}).encode()
        return 200, json.dumps(found).encode()

    def found(self, steps: list[str], query: dict[str, str]) -> object:
        everywhere = query.get("subjectPrefix") == ":*:" or steps not in (["schemas"], ["subjects"])
        shown = {
            place: {key: value for key, value in told.items() if key != "_deleted"}
            for place, told in self.versions.items()
            if (query.get("deleted") == "true" or not told["_deleted"]) and (everywhere or place[0][0] != ":")
        }
        if steps == ["schemas"] and self.has_list:
            start = int(query["offset"]) if self.knows_pages else 0
            return list(shown.values())[start : start + int(query["limit"])]
        if steps == ["subjects"]:
            return sorted({subject for subject, _ in shown})
        if steps[0] == "subjects" and len(steps) == 3:
            return [version for subject, version in shown if subject == steps[1]] or None
        if steps[0] == "subjects" and len(steps) == 4:
            number = max(v for s, v in shown if s == steps[1]) if steps[3] == "latest" else int(steps[3])
            return shown.get((steps[1], number))
        if steps[:2] == ["schemas", "ids"]:
            return next(({"schema": each["schema"]} for each in shown.values() if each["id"] == int(steps[2])), None)
        if steps[:2] == ["schemas", "guids"]:
            return next(({"schema": each["schema"]} for each in shown.values() if each.get("guid") == steps[2]), None)
        return None


@contextmanager
def serving(registry: Registry, context: ssl.SSLContext | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.requests.append(self.path)
            registry.authorizations.append(self.headers["Authorization"])
            status, body = registry.answer(self.path)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_arguments: Any) -> None:
            """A client that has given up is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http{'' if context is None else 's'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.add("orders-value", 1, 1, '"long"', deleted=True)
    registry.add("orders-value", 2, 2, '"string"', guid=GUID)
    registry.add(
        "a/b c-value", 1, 3, "{}", schemaType="JSON", references=[{"name": "x.json", "subject": "x", "version": 1}]
    )
    registry.add("x", 1, 4, "{}", schemaType="JSON")
    registry.add(":.prod:orders-value", 1, 1, '"int"')
    return registry


@pytest.fixture
def url(registry) -> Iterator[str]:
    with serving(registry) as url:
        yield url


def everything(catalogue: SchemaCatalogue) -> list[tuple[str, int, int | None, bool]]:
    names = catalogue.subjects(deleted=True)
    return [
        (each.subject, each.version, each.schema.id, each.deleted)
        for name in names
        for each in catalogue.versions(name, deleted=True)
    ]


ALL = [
    (":.prod:orders-value", 1, 1, False),
    ("a/b c-value", 1, 3, False),
    ("orders-value", 1, 1, True),
    ("orders-value", 2, 2, False),
    ("x", 1, 4, False),
]


class TestFetching:
    @pytest.mark.parametrize(
        ("page", "has_list", "knows_pages"),
        [(1000, True, True), (2, True, True), (1000, True, False), (1000, False, True)],
    )
    def test_all_of_it(self, registry, url, monkeypatch, page, has_list, knows_pages):
        monkeypatch.setattr(registry_module, "_PAGE", page)
        registry.has_list, registry.knows_pages = has_list, knows_pages
        catalogue = fetch_catalogue(RegistrySettings(url=url))
        assert everything(catalogue) == ALL
        assert present(catalogue.by_id(1)).text == '"long"'
        assert present(catalogue.by_id(1, ".prod")).text == '"int"'
        assert present(catalogue.by_guid(UUID(GUID))).id == 2

    def test_some_subjects_with_their_references(self, registry, url):
        catalogue = fetch_catalogue(RegistrySettings(url=url + "/"), ["a/b c-value"])
        assert everything(catalogue) == [ALL[1], ALL[4]]
        assert "x.json" in catalogue.resolve(catalogue.get("a/b c-value"))
        assert len(registry.requests) == 4

    def test_ids_that_came_later(self, url):
        catalogue = fetch_ids(RegistrySettings(url=url), [2, UUID(GUID)], SchemaCatalogue())
        assert present(catalogue.by_id(2)).text == '"string"'
        assert present(catalogue.by_guid(UUID(GUID))).text == '"string"'
        assert catalogue.ids() == [2]
        with pytest.raises(SchemaError, match="it has no schema 77"):
            fetch_ids(RegistrySettings(url=url), [77], SchemaCatalogue())

    def test_an_unknown_type_is_reported_and_skipped(self, registry, url):
        registry.add("future", 1, 9, "?", schemaType="XML")
        catalogue = fetch_catalogue(RegistrySettings(url=url))
        assert everything(catalogue) == ALL
        assert "subject 'future' version 1" in catalogue.problems[0]

    @pytest.mark.parametrize(
        ("settings", "header"),
        [
            ({}, None),
            ({"username": "me", "password": "p:w"}, "Basic " + base64.b64encode(b"me:p:w").decode()),
            ({"token": "t"}, "Bearer t"),
        ],
    )
    def test_logging_in(self, registry, url, settings, header):
        fetch_catalogue(RegistrySettings(url=url, **settings))
        assert set(registry.authorizations) == {header}

    def test_credentials_in_the_address(self, registry, url):
        fetch_catalogue(RegistrySettings(url=url.replace("//", "//m%40e:p%3Aw@")))
        assert registry.authorizations[0] == "Basic " + base64.b64encode(b"m@e:p:w").decode()

    def test_tls_checks_the_certificate(self, registry, tmp_path):
        authority = Authority()
        signed = authority.sign()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed.written(tmp_path / "server.pem"))
        (tmp_path / "ca.pem").write_text(authority.pem)
        with serving(registry, context) as url:
            trusted = RegistrySettings(url=url, ca_file=str(tmp_path / "ca.pem"))
            assert everything(fetch_catalogue(trusted)) == ALL
            with pytest.raises(SchemaError, match="CERTIFICATE_VERIFY_FAILED"):
                fetch_catalogue(RegistrySettings(url=url))
        with pytest.raises(SchemaError, match="certificates for the schema registry cannot be read"):
            fetch_catalogue(RegistrySettings(url="https://localhost:1", ca_file=str(tmp_path / "none.pem")))


class TestBadRegistries:
    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            ((200, b"<html>"), "its answer is not JSON: b'<html>'; is this a registry's address"),
            ((200, b"[" * 100_000), "its answer is not JSON"),
            ((200, b"{}"), "answered {} instead of a list"),
            ((200, b"[1]"), "answered 1 instead of an object"),
            ((200, b"[{}]"), "lists a schema without subject and version"),
            ((401, b'{"message": "who are you"}'), r"refused the credentials \(401\): who are you"),
            ((403, b""), r"refused the credentials \(403\)"),
            ((302, b""), "it answered 302"),
            ((500, b'{"message": "leader unknown"}'), "it answered 500 Internal Server Error: leader unknown"),
            ((400, b"[]"), "it answered 400"),
        ],
    )
    def test_nonsense(self, registry, url, answer, problem):
        registry.override = lambda _path: answer
        with pytest.raises(SchemaError, match=problem) as raised:
            fetch_catalogue(RegistrySettings(url=url.replace("//", "//me:secret@")))
        assert "secret" not in str(raised.value)
        assert "secret" not in repr(RegistrySettings(url=url, password="secret", token="secret"))
        # Only what may pass is tried again.
        assert len(registry.requests) == (3 if answer[0] == 500 else 1)

    def test_too_large_an_answer(self, registry, url, monkeypatch):
        monkeypatch.setattr(registry_module, "MAX_ANSWER_BYTES", 100_000)
        registry.override = lambda _path: (200, b" " * 200_000)
        with pytest.raises(SchemaError, match="its answer has more than 0 MiB"):
            fetch_catalogue(RegistrySettings(url=url))

    def test_too_many_schemas(self, url, monkeypatch):
        monkeypatch.setattr(registry_module, "MAX_CATALOGUE_BYTES", 10)
        with pytest.raises(SchemaError, match="name the subjects that you need"):
            fetch_catalogue(RegistrySettings(url=url))

    def test_a_subject_that_is_not_text(self, registry, url):
        registry.has_list = False
        registry.override = lambda path: (200, b'["\\ud800"]') if path.startswith("/subjects?") else None
        with pytest.raises(SchemaError, match="is not Unicode text"):
            fetch_catalogue(RegistrySettings(url=url))

    def test_a_list_without_an_end(self, registry, url, monkeypatch):
        """Whatever else its entries have is not kept."""
        monkeypatch.setattr(registry_module, "MAX_SCHEMAS", 2_500)

        def page(path: str) -> Answer:
            start = int(parse_qs(urlsplit(path).query)["offset"][0])
            rows = [
                {"subject": f"s{start + row}", "version": 1, "id": 1, "schema": '"int"', "more": "x" * 100}
                for row in range(1_000)
            ]
            return 200, json.dumps(rows).encode()

        registry.override = page
        with pytest.raises(
            SchemaError, match="more than 2,500 schemas, or more than 256 MiB of them; name the subjects"
        ):
            fetch_catalogue(RegistrySettings(url=url))
        assert len(registry.requests) == 3

    def test_a_slow_one(self, registry, url):
        waiting = threading.Event()
        registry.override = lambda _path: (waiting.wait(5), None)[1]
        try:
            with pytest.raises(SchemaError, match="timed out"):
                fetch_catalogue(RegistrySettings(url=url, timeout_seconds=0.05))
        finally:
            waiting.set()

    def test_the_deadline_of_all_requests(self, url, monkeypatch):
        now = iter(range(1000))
        monkeypatch.setattr("duralog.schemas.registry.time.monotonic", lambda: float(next(now)))
        with pytest.raises(SchemaError, match="did not give all schemas before the deadline"):
            fetch_catalogue(RegistrySettings(url=url, deadline_seconds=3))

    @pytest.mark.parametrize(
        "beginning", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"]
    )
    def test_one_that_answers_byte_by_byte(self, beginning):
        """Each byte comes within the timeout, all of them would take a minute."""

        def answer():
            connected, _ = server.accept()
            with connected, contextlib.suppress(OSError):
                connected.recv(1 << 16)
                connected.sendall(beginning)
                for _ in range(600):
                    connected.sendall(b" ")
                    time.sleep(0.1)

        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=answer, daemon=True).start()
            address = f"http://127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(SchemaError, match="before the deadline"):
                fetch_catalogue(RegistrySettings(url=address, deadline_seconds=0.5))

    def test_one_that_is_down(self):
        with pytest.raises(SchemaError, match=r"schema registry http://127.0.0.1:1: it cannot be reached: .*refused"):
            fetch_catalogue(RegistrySettings(url="http://127.0.0.1:1"))

    @pytest.mark.parametrize("address", ["file:///etc/passwd", "registry:8081", "ftp://x", "http://"])
    def test_other_addresses(self, address):
        with pytest.raises(SchemaError, match="address is http:// or https://"):
            fetch_catalogue(RegistrySettings(url=address))

    def test_subjects_and_references_that_are_gone(self, registry, url):
        with pytest.raises(SchemaError, match="no subject 'nothing'"):
            fetch_catalogue(RegistrySettings(url=url), ["nothing"])
        del registry.versions["x", 1]
        with pytest.raises(SchemaError, match=r"subject 'x' version 1 is gone; schema id 3 references it as 'x.json'"):
            fetch_catalogue(RegistrySettings(url=url), ["a/b c-value"])
