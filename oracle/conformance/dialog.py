"""One scenario's talk with one server, written down.

What is asked and answered goes into the transcript in normal form, so that the transcripts of two servers can be
compared line by line. What only prepares (waiting until a topic has its leaders, say) does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from duralog.format import record_batch
from duralog.format.record import Record
from oracle.conformance.normal_form import Address, NormalForm
from oracle.conformance.wire import ANSWER_SECONDS, Closed, Connection, Fields

TIME_MS = 1_700_000_000_000
"""When the records of the scenarios were made."""
NOT_READY = frozenset({14, 15, 16})
"""A coordinator that loads its partition or is about to be elected: ask again, as every client does."""
BETWEEN_TRANSACTIONS = frozenset({51})
"""The markers of the transaction before are still being written: ask again, as every client does."""
_PAUSE_SECONDS = 0.01
_SHOWN = 60


@dataclass(frozen=True)
class Line:
    """What was asked, and the answer in normal form."""

    asked: str
    answer: Any


class Dialog:
    def __init__(self, address: Address, name: str) -> None:
        self.name = name
        self.transcript: list[Line] = []
        self.versions_asked: set[tuple[str, int]] = set()
        self._address = address
        self._normal = NormalForm(address)
        self._connections: dict[str, Connection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def on(self, name: str = "") -> Talk:
        """One of the scenario's connections, opened when it is first named."""
        return Talk(self, name)

    def ask(self, api: str, version: int, **fields: Any) -> Fields:
        return self.on().ask(api, version, **fields)

    def eventually(self, wanted: Callable[[Fields], object], api: str, version: int, **fields: Any) -> Fields:
        """Ask until the answer is as wanted, and write down the last."""
        return self.on().eventually(wanted, api, version, **fields)

    def normal(self, value: Any) -> Any:
        return self._normal.of(value)

    def note(self, asked: str, answer: object) -> None:
        self.transcript.append(Line(asked, self._normal.of(answer)))

    def shown(self, value: object, field: str = "") -> str:
        """A request in one line, in normal form; what is long is cut."""
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name}: {self.shown(each, name)}" for name, each in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self.shown(each, field) for each in value) + "]"
        if isinstance(value, bytes) and len(value) > _SHOWN:
            return f"{len(value)} bytes"
        if isinstance(value, bytes):
            return repr(value)
        text = repr(self._normal.of(value, field))
        return text if len(text) < _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"

    def tries(self) -> Iterator[None]:
        """For loops that wait for something: they end when it is there, or fail after a minute."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            yield
            time.sleep(_PAUSE_SECONDS)
        raise TimeoutError(f"{self.name}: nothing came of it in {ANSWER_SECONDS} s")

    def connection(self, name: str) -> Connection:
        if name not in self._connections:
            self._connections[name] = Connection(self._address)
        return self._connections[name]

    def fresh_connection(self) -> Connection:
        """One that the scenario closes itself."""
        return Connection(self._address)

    def reconnect(self, name: str = "") -> None:
        self.connection(name).close()
        del self._connections[name]

    def create_topic(self, topic: str, partitions: int = 1, **configs: object) -> UUID:
        """A topic that is ready for requests. Config names with underscores for dots."""
        connection = self.connection("preparing")
        named = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()],
        }
        made = connection.ask("create_topics", 7, {"topics": [named], "timeout": 30_000})["topics"][0]
        assert made["error_code"] == 0, made
        self._wait_for_leaders(topic, partitions)
        topic_id: UUID = made["topic_id"]
        self.normal(topic_id)  # Ids are numbered in the order in which topics are made.
        return topic_id

    def _wait_for_leaders(self, topic: str, partitions: int) -> None:
        connection = self.connection("preparing")
        asked = {
            "topics": [
                {"name": topic, "partitions": [{"partition_index": n, "timestamp": -1} for n in range(partitions)]}
            ]
        }
        for _ in self.tries():
            answer = connection.ask("list_offsets", 5, {"replica_id": -1, **asked})
            if all(each["error_code"] == 0 for each in answer["topics"][0]["partitions"]):
                return

    def write(self, topic: str, partition: int = 0, count: int = 1, **batch: Any) -> int:
        """Records that only prepare. Returns the offset of the first."""
        data = {"name": topic, "partition_data": [{"index": partition, "records": records(count, **batch)}]}
        answer = self.connection("preparing").ask("produce", 9, {"acks": -1, "timeout": 30_000, "topic_data": [data]})
        (produced,) = answer["responses"][0]["partition_responses"]
        assert produced["error_code"] == 0, produced
        offset: int = produced["base_offset"]
        return offset


class Talk:
    """One connection of a dialog. Several let requests wait for each other."""

    def __init__(self, dialog: Dialog, name: str) -> None:
        self._dialog = dialog
        self._name = name

    def send(self, api: str, version: int, **fields: Any) -> Pending:
        dialog = self._dialog
        dialog.versions_asked.add((api, version))
        asked = f"{api} v{version}{' on ' + self._name if self._name else ''} {dialog.shown(fields)}"
        connection = dialog.connection(self._name)
        return Pending(dialog, connection, api, version, connection.send(api, version, fields), asked)

    def ask(self, api: str, version: int, **fields: Any) -> Fields:
        """The answer. One that tells that the coordinator is not ready yet is asked for again."""
        return self.eventually(is_ready, api, version, **fields)

    def eventually(self, wanted: Callable[[Fields], object], api: str, version: int, **fields: Any) -> Fields:
        for _ in self._dialog.tries():
            pending = self.send(api, version, **fields)
            answer = pending.take()
            if wanted(answer):
                break
        pending.write_down(answer)
        return answer

    def ask_or_be_closed(self, name: str, api: str, version: int, **fields: Any) -> None:
        """For requests that may cost the connection: written down under a name, and the talk goes on after it."""
        self._dialog.versions_asked.add((api, version))
        try:
            answer: object = self._dialog.connection(self._name).ask(api, version, fields)
        except Closed:
            answer = "closed"
            self._dialog.reconnect(self._name)
        self._dialog.note(name, answer)

    def send_frame(self, frame: bytes, name: str) -> None:
        """Bytes as they are. The reaction is written down: an answer's bytes, or that the connection was closed."""
        self.react(lambda connection: connection.send_frame(frame), name)

    def react(self, send: Callable[[Connection], object], name: str) -> None:
        connection = self._dialog.connection(self._name)
        try:
            send(connection)
            reaction: object = connection.receive_frame().hex()
        except Closed:
            reaction = "closed"
            self._dialog.reconnect(self._name)
        self._dialog.note(name, reaction)


@dataclass(frozen=True)
class Pending:
    """A request that was sent."""

    dialog: Dialog
    connection: Connection
    api: str
    version: int
    correlation_id: int
    asked: str

    def receive(self) -> Fields:
        answer = self.take()
        self.write_down(answer)
        return answer

    def take(self) -> Fields:
        """The answer, not written down."""
        try:
            return self.connection.receive(self.api, self.version, self.correlation_id)
        except Closed:
            self.dialog.note(self.asked, "closed")
            raise

    def write_down(self, answer: Fields) -> None:
        self.dialog.note(self.asked, answer)


def records(count: int = 1, first: int = 0, *, of: Sequence[Record] | None = None, **batch: Any) -> bytes:
    """A batch of numbered records, a second apart."""
    numbers = range(first, first + count)
    made = [Record(key=b"key %d" % n, value=b"value %d" % n, timestamp_ms=TIME_MS + 1000 * n) for n in numbers]
    return record_batch.encode(list(of) if of is not None else made, **batch)


def error_codes(answer: object) -> Iterator[int]:
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield value
            elif isinstance(value, dict | list):
                yield from error_codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)


def is_ready(answer: Fields) -> bool:
    return NOT_READY.isdisjoint(error_codes(answer))


def is_done_with_the_last(answer: Fields) -> bool:
    return is_ready(answer) and BETWEEN_TRANSACTIONS.isdisjoint(error_codes(answer))
