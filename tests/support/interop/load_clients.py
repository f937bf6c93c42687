"""Clients by the hundred on one selector: producers, group members that fetch and commit, and onlookers.

Each connection has one request on its way and sends the next when the answer is there. What answers must be is checked:
any error code is counted, every record that a producer got acknowledged must reach the group that owns its partition.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

from oracle.conformance.dialog import error_codes, records
from oracle.conformance.wire import API_KEYS, Fields, decode_response, encode_request, header, is_flexible

TOPIC = "load"
WAIT_SECONDS = 60
Request = tuple[str, int, dict[str, Any]]
Talk = Generator[Request, Fields, None]
"""A client: it yields what it asks, and is sent the answer."""


class _Client:
    """One connection."""

    def __init__(self, address: tuple[str, int], talk: Talk) -> None:
        self.socket = socket.create_connection(address, timeout=WAIT_SECONDS)
        self.socket.setblocking(False)
        self._talk = talk
        self._received = bytearray()
        self._asked: Request | None = None
        self._numbers = count()
        self._number = 0
        self.ended = False

    def begin(self) -> None:
        self._ask(next(self._talk))

    def _ask(self, request: Request) -> None:
        api, version, fields = request
        self._asked, self._number = request, next(self._numbers)
        body = header(API_KEYS[api], version, self._number, "load", is_flexible(api, version))
        body += encode_request(api, version, fields)
        self.socket.setblocking(True)
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        self.socket.setblocking(False)

    def readable(self, note: Callable[[str, Fields], None]) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed a connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            return
        frame = bytes(self._received[4:])
        self._received.clear()
        assert self._asked is not None
        api, version, _ = self._asked
        assert struct.unpack_from(">i", frame)[0] == self._number
        answer = decode_response(api, version, frame[5 if is_flexible(api, version) else 4 :])
        note(api, answer)
        try:
            self._ask(self._talk.send(answer))
        except StopIteration:
            self.ended = True


class Load:
    """All clients, and what came of them."""

    def __init__(self, address: tuple[str, int], *, connections: int, partitions: int, groups: int) -> None:
        self.errors: Counter[str] = Counter()
        self.produced = self.consumed = self.commits = 0
        self._address = address
        self._partitions = partitions
        self._groups = groups
        self._onlookers = connections - partitions - groups
        self._end: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._stopping = False
        self._clients: list[_Client] = []
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """The topic, and every connection with its first request sent."""
        topic = {"name": TOPIC, "num_partitions": self._partitions, "replication_factor": 1}
        self._run_one(self._once("create_topics", 7, {"topics": [topic], "timeout": 60_000}))
        self._run_one(self._wait_for_leaders())
        self._run_one(self._wait_for_coordinator())
        self.errors.clear()
        talks = [self._producer(number) for number in range(self._partitions)]
        talks += [self._member(number) for number in range(self._groups)]
        talks += [self._onlooker() for _ in range(self._onlookers)]
        for talk in talks:
            client = _Client(self._address, talk)
            self._clients.append(client)
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            client.begin()

    def run(self, *, until: float) -> None:
        while time.monotonic() < until:
            self._turn()

    def finish(self) -> None:
        """Producers stop, groups read to the end and leave, everyone else goes after its last answer."""
        self._stopping = True
        deadline = time.monotonic() + WAIT_SECONDS
        while not all(client.ended for client in self._clients):
            assert time.monotonic() < deadline, f"{sum(not client.ended for client in self._clients)} clients hang"
            self._turn()

    def close(self) -> None:
        self._selector.close()
        for client in self._clients:
            client.socket.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(1.0):
            key.data.readable(self._note)
            if key.data.ended:
                self._selector.unregister(key.fileobj)

    def _note(self, api: str, answer: Fields) -> None:
        for code in error_codes(answer):
            if code:
                self.errors[f"{api}: {code}"] += 1

    def _run_one(self, talk: Talk) -> None:
        """A talk by itself, on a connection of its own."""
        client = _Client(self._address, talk)
        client.begin()
        client.socket.setblocking(True)
        client.socket.settimeout(WAIT_SECONDS)
        while not client.ended:
            client.readable(self._note)
            client.socket.settimeout(WAIT_SECONDS)
        client.socket.close()

    def _once(self, api: str, version: int, fields: dict[str, Any]) -> Talk:
        yield api, version, fields

    def _wait_for_leaders(self) -> Talk:
        every = [{"partition_index": number, "timestamp": -1} for number in range(self._partitions)]
        while True:
            answer = yield "list_offsets", 5, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": every}]}
            if not any(error_codes(answer)):
                return

    def _wait_for_coordinator(self) -> Talk:
        while True:
            answer = yield "find_coordinator", 1, {"key": "load-0"}
            if answer["error_code"] == 0:
                return

    def _producer(self, partition: int) -> Talk:
        """One partition's only producer: offsets are known in advance."""
        batch = records(5)
        while not self._stopping:
            data = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
            answer = yield "produce", 9, {"acks": -1, "timeout": 30_000, "topic_data": [data]}
            (produced,) = answer["responses"][0]["partition_responses"]
            if produced["base_offset"] != self._end[partition]:
                self.errors[f"partition {partition}: offset {produced['base_offset']}, not {self._end[partition]}"] += 1
            self._end[partition] += 5
            self.produced += 5

    def _member(self, number: int) -> Talk:
        """The only member of a group: it fetches its share of the partitions and commits."""
        group = {"group_id": f"load-{number}"}
        answer = yield (
            "join_group",
            3,
            group
            | {
                "session_timeout": 300_000,
                "rebalance_timeout": 60_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": struct.pack(">hiI", 0, 0, 0xFFFFFFFF)}],
            },
        )
        who = {"member_id": answer["member_id"], "generation_id": answer["generation_id"]}
        assigned = [{"member_id": answer["member_id"], "assignment": b"all"}]
        yield "sync_group", 2, group | who | {"assignments": assigned}
        owner = {"member_id": who["member_id"], "generation_id_or_member_epoch": who["generation_id"]}
        positions = dict.fromkeys(range(number, self._partitions, self._groups), 0)
        while True:
            stopping = self._stopping
            asked = [
                {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 16}
                for partition, offset in positions.items()
            ]
            limits = {"max_wait": 100, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "replica_id": -1}
            answer = yield "fetch", 11, limits | {"topics": [{"topic": TOPIC, "partitions": asked}]}
            for each in answer["responses"][0]["partitions"]:
                self._take(positions, each)
            committed = [
                {"partition_index": partition, "committed_offset": offset} for partition, offset in positions.items()
            ]
            yield "offset_commit", 7, group | owner | {"topics": [{"name": TOPIC, "partitions": committed}]}
            self.commits += 1
            yield "heartbeat", 3, group | who
            if stopping and all(self._end[partition] == offset for partition, offset in positions.items()):
                break
        yield "leave_group", 1, group | {"member_id": who["member_id"]}

    def _take(self, positions: dict[int, int], fetched: Fields) -> None:
        data, position = fetched["records"] or b"", 0
        while position + 61 <= len(data):
            base, size = struct.unpack_from(">qi", data, position)
            if position + 12 + size > len(data):
                break
            (last,) = struct.unpack_from(">i", data, position + 23)
            end = base + last + 1
            known = positions[fetched["partition_index"]]
            if end > known:
                self.consumed += end - max(base, known)
                if base > known:
                    self.errors[f"partition {fetched['partition_index']}: {known} to {base} are missing"] += 1
                positions[fetched["partition_index"]] = end
            position += 12 + size

    def _onlooker(self) -> Talk:
        """What the many connections of an application do now and then."""
        while not self._stopping:
            yield "metadata", 9, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
            partition = [{"partition_index": 0, "timestamp": -1}]
            yield "list_offsets", 5, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": partition}]}
            # Nothing comes at the end of an empty partition: the connection waits, as idle consumers do.
            idle = [{"partition": 0, "fetch_offset": self._end[0], "partition_max_bytes": 1 << 16}]
            yield (
                "fetch",
                11,
                {
                    "max_wait": 500,
                    "min_bytes": 1 << 24,
                    "max_bytes": 1 << 20,
                    "session_epoch": -1,
                    "replica_id": -1,
                    "topics": [{"topic": TOPIC, "partitions": idle}],
                },
            )
