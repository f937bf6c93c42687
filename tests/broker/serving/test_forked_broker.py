"""A process forks while it runs a broker: the broker, its port and its clients stay the parent's."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from duralog import Record
from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address
from duralog.kernels.compile import Kernel
from duralog.testing import TestBroker, kafka_broker, running_broker
from tests.support.forked_child import fork, in_child

__all__ = ["kafka_broker"]


def produce(bootstrap_servers: str) -> int:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("orders", b"value", b"key")
    return producer.flush(60)


def test_a_child_is_a_client_as_any_other(kafka_broker: TestBroker) -> None:
    assert in_child(lambda: produce(kafka_broker.bootstrap_servers)) == "0"
    assert produce(kafka_broker.bootstrap_servers) == 0
    assert kafka_broker.store.partition("orders", 0).end_offset == 2


def test_the_store_of_the_broker_refuses_in_a_child(kafka_broker: TestBroker) -> None:
    kafka_broker.store.create_topic("orders", 1)
    answer = in_child(lambda: kafka_broker.store.partition("orders", 0).append([Record(value=b"1")]))
    assert f"StorageError: {kafka_broker.store.path}: process {os.getpid()} opened it" in answer


def open_sockets() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # The one that listed the others.
        if link.startswith("socket:") or "eventpoll" in link or "eventfd" in link or "duralog-ephemeral" in link:
            links.append(link)
    return sorted(links)


def test_the_child_has_neither_sockets_nor_the_folder_open() -> None:
    gc.collect()  # Descriptors that earlier tests in this process have left.
    before = open_sockets()
    with Broker(None, metrics=Address("127.0.0.1", 0)) as broker:
        broker.start()
        with socket.create_connection((broker.node.host, broker.node.port)):
            produce(f"{broker.node.host}:{broker.node.port}")
            assert len(open_sockets()) > len(before) + 4
            left = in_child(open_sockets)
        # The client's own end is the test's, and not the broker's.
        assert left.count("socket:") <= str(before).count("socket:") + 1
        assert left.count("event") <= str(before).count("event")
        assert f"'{broker.store.path}'" not in left


ENDS: dict[str, Callable[[Broker], object]] = {
    "stop": lambda broker: broker.stop(),
    "close": lambda broker: broker.close(),
    "leave the block": lambda broker: broker.__exit__(None, None, None),
    "close the store": lambda broker: broker.store.close(),
}
REFUSED: dict[str, Callable[[Broker], object]] = {
    "start": lambda broker: broker.start(),
    "run": lambda broker: broker.run(),
    "run what is pending": lambda broker: broker.run_pending(),
}


def test_a_child_can_neither_stop_nor_run_the_broker() -> None:
    with Broker(None) as broker:
        broker.start()
        address = f"{broker.node.host}:{broker.node.port}"
        assert produce(address) == 0
        for end in ENDS.values():
            assert in_child(lambda end=end: end(broker)) == "None"  # type: ignore[misc]
            assert os.path.isdir(broker.store.path)
            assert produce(address) == 0
        for call in REFUSED.values():
            answer = in_child(lambda call=call: call(broker))  # type: ignore[misc]
            assert f"StorageError: the broker: process {os.getpid()} opened it" in answer
        assert produce(address) == 0
        assert broker.store.partition("orders", 0).end_offset == len(ENDS) + 2


def test_a_child_that_leaves_the_block_of_the_broker_leaves_it_running() -> None:
    mine = os.getpid()
    child = 0
    try:
        with running_broker() as broker:
            child = fork()
            if child == 0:
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert produce(broker.bootstrap_servers) == 0
            assert os.path.isdir(broker.store.path)
    finally:
        if os.getpid() != mine:
            os._exit(0)


def test_a_client_notices_the_end_of_the_broker_though_a_child_lives_on() -> None:
    receiving, sending = os.pipe()
    with running_broker() as broker:
        client = socket.create_connection((broker.host, broker.port))
        produce(broker.bootstrap_servers)  # By now, the broker has accepted the client.
        port = broker.port
        child = fork()
        if child == 0:
            os.close(sending)
            os.read(receiving, 1)  # Until the other end is closed.
            os._exit(0)
    try:
        client.settimeout(60)
        assert client.recv(1) == b""
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((broker.host, port))
            again.listen()
    finally:
        client.close()
        os.close(sending)
        os.close(receiving)
        os.waitpid(child, 0)


def test_kernels_that_are_compiled_at_the_fork_can_be_used_in_the_child() -> None:
    is_compiling = threading.Event()

    class Slow(Kernel):
        def _compile(self) -> Callable[..., object]:
            is_compiling.set()
            # Long enough for the fork to come meanwhile: if not, it waits for less.
            threading.Event().wait(0.2)
            return lambda: "ready"

    kernel, other = Slow(lambda: None, None), Slow(lambda: None, None)
    thread = threading.Thread(target=kernel.prepare)
    thread.start()
    is_compiling.wait()
    try:
        assert in_child(lambda: (kernel(), other())) == "('ready', 'ready')"
    finally:
        thread.join()


SCRIPT = """
import os, sys
from duralog.testing import running_broker
with running_broker(data=sys.argv[1]) as broker:
    broker.store.create_topic("orders", 1)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    broker.store.partition("orders", 0).append([])
    assert not os.path.exists(sys.argv[1] + "/.kafka_cleanshutdown")
print("done")
"""


def test_the_interpreter_of_a_child_ends_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_a_broker_that_was_not_opened_yet_can_be_opened_in_a_child() -> None:
    broker = Broker(None)

    def serve() -> int:
        with broker:
            broker.start()
            return produce(f"{broker.node.host}:{broker.node.port}")

    assert in_child(serve) == "0"
