"""From the command `duralog serve` to its first answer, and to the first record that a client produced and consumed.

    python scripts/first_answer.py DIR

DIR is made. Needs duralog and confluent-kafka in the environment. Prints seconds as JSON: `answer` and `consumed`. The
clients are loaded before the clock starts, as those of a running service are.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time

import confluent_kafka

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Size, key of the API, version, correlation id, no client id."""
_PATIENCE_SECONDS = 120.0
_TOPIC = "first"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def wait_for_an_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS) as connection:
                connection.sendall(_API_VERSIONS)
                if len(connection.recv(4)) == 4:
                    return
        except ConnectionError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the broker did not answer")
        time.sleep(0.005)


def produce_and_consume(address: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    producer.produce(_TOPIC, b"first")
    if producer.flush(_PATIENCE_SECONDS):
        raise SystemExit("the record was not produced")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "first"})
    consumer.assign([confluent_kafka.TopicPartition(_TOPIC, 0, 0)])
    message = consumer.poll(_PATIENCE_SECONDS)
    if message is None or message.value() != b"first":
        raise SystemExit("the record was not consumed")
    consumer.close()


def main() -> int:
    port = free_port()
    began = time.monotonic()
    process = subprocess.Popen(["duralog", "serve", "--data", sys.argv[1], "--listen", f"127.0.0.1:{port}", "--quiet"])
    try:
        wait_for_an_answer(port, process)
        answered = time.monotonic()
        produce_and_consume(f"127.0.0.1:{port}")
        consumed = time.monotonic()
    finally:
        process.terminate()
        process.wait()
    print(json.dumps({"answer": answered - began, "consumed": consumed - began}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
