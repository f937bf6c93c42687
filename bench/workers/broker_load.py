"""What clients do to a broker: BROKER LOAD FOLDER AMOUNT. One line tells the time, the broker's CPU and its memory.

BROKER is `duralog` or `kafka`. The broker is started here and not timed, on a new directory, with one topic of a
hundred partitions. AMOUNT is what the load counts: records, megabytes or requests.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.workers.broker_guard import Logins, client_settings
from bench.workers.broker_server import BrokerUnderTest
from bench.workers.broker_wire import TOPIC, Connection, batch_of, fetch_request, produce_request, send_all
from bench.workers.passes import tell
from oracle.kafka_jars import class_path

PARTITIONS = 100
_IN_FLIGHT = 5
"""As many as Kafka's own producer has under way on a connection."""
_MEGABYTE = 1 << 20
_PACED_MB_PER_SECOND = 40
_WARM_UP_PART = 4
_PATIENT = ("--timeout", "60000")
"""How long the consumer waits for the first records: Kafka makes a topic for the group before."""
_CLIENT_JVM = ("java", "-server", "-Xmx512m", "-XX:+UseG1GC")


class Load:
    """A broker with its topic."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self.broker = broker
        with broker.connect() as connection:
            connection.create_topic(PARTITIONS)

    # Kafka's own tools

    def producer_perf(self, records: int, record_bytes: int, *properties: str, is_encrypted: bool = False) -> None:
        address = self._encrypted() if is_encrypted else [f"bootstrap.servers={self.broker.bootstrap}"]
        before = self.broker.cpu_seconds
        said = self._tool(
            "ProducerPerformance",
            *("--topic", TOPIC, "--num-records", str(records), "--record-size", str(record_bytes)),
            *("--throughput", "-1", "--producer-props", *address, *properties),
        )
        sent, rate = _sent_and_rate(said)
        if sent != records or self._count() != records:
            raise SystemExit(f"{sent} of {records} records were sent, {self._count()} are there")
        self._tell(records / rate, self.broker.cpu_seconds - before, records)

    def consumer_perf(self, records: int, record_bytes: int, *, is_encrypted: bool = False) -> None:
        self._fill(records * record_bytes, record_bytes)
        there = self._count()
        address = ["--bootstrap-server", self.broker.bootstrap]
        if is_encrypted:
            settings = self.broker.folder / "client.properties"
            settings.write_text("\n".join(self._encrypted()))
            address[1] = f"127.0.0.1:{self.broker.ports['SSL']}"
            address += ["--command-config", str(settings)]
        before = self.broker.cpu_seconds
        said = self._tool("ConsumerPerformance", *address, "--topic", TOPIC, "--num-records", str(there), *_PATIENT)
        # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
        fields = said.strip().splitlines()[-1].split(", ")
        if int(fields[4]) < there:
            raise SystemExit(f"{fields[4]} of {there} records were read")
        self._tell(int(fields[4]) / float(fields[9]), self.broker.cpu_seconds - before, int(fields[4]))

    def _encrypted(self) -> list[str]:
        return client_settings(self.broker.certificate, self.broker.ports["SSL"])

    # Log-ins

    def logins(self, count: int) -> None:
        """TLS and SCRAM, one after the other."""
        logins = Logins(f"{self.broker.certificate}.crt", self.broker.ports["SASL_SSL"])
        for _ in range(count // _WARM_UP_PART):
            logins.log_in()
        before, start = self.broker.cpu_seconds, time.perf_counter()
        for _ in range(count):
            logins.log_in()
        self._tell(time.perf_counter() - start, self.broker.cpu_seconds - before, count)

    def latency_under_logins(self, requests: int) -> None:
        """The latency of small requests while another process logs in 200 times a second."""
        certificate, port = f"{self.broker.certificate}.crt", str(self.broker.ports["SASL_SSL"])
        self._beside([sys.executable, "-m", "bench.workers.broker_guard", certificate, port], requests)

    def _tool(self, name: str, *arguments: str) -> str:
        with tempfile.TemporaryDirectory(prefix="duralog-bench-") as folder:
            quiet = Path(folder) / "log4j2.properties"
            quiet.write_text("status = error\nrootLogger.level = off\n")
            options = ("-cp", class_path(), f"-Dlog4j2.configurationFile={quiet}", f"org.apache.kafka.tools.{name}")
            ran = subprocess.run(
                [*_CLIENT_JVM, *options, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        if ran.returncode:
            raise SystemExit(f"{name}: {(ran.stderr or ran.stdout).strip()[-300:]}")
        return ran.stdout

    # Other clients

    def confluent(self, records: int) -> None:
        """confluent-kafka with its defaults, but for a larger queue: its loop runs in this process."""
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": self.broker.bootstrap,
            "acks": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
        producer = Producer(settings)
        value = bytes(100)
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, value, partition=partition)
        producer.flush()
        before, start = self.broker.cpu_seconds, time.perf_counter()
        for _ in range(records):
            while True:
                try:
                    producer.produce(TOPIC, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush()
        seconds = time.perf_counter() - start
        if self._count() != records + PARTITIONS:
            raise SystemExit(f"{self._count()} records are there, {records + PARTITIONS} were sent")
        self._tell(seconds, self.broker.cpu_seconds - before, records)

    # Requests that were made before

    def raw_produce(self, megabytes: int, connections: int) -> None:
        seconds, cpu, size = self._produce(megabytes, connections)
        self._tell(seconds, cpu, size)

    def raw_fetch(self, megabytes: int) -> None:
        seconds, cpu, size = self._fetch(megabytes)
        self._tell(seconds, cpu, size)

    def produce_cpu(self, megabytes: int) -> None:
        _, cpu, size = self._produce(megabytes, 4)
        self._tell(cpu / size * 1e9, cpu / size * 1e9, size)

    def fetch_cpu(self, megabytes: int) -> None:
        _, cpu, size = self._fetch(megabytes)
        self._tell(cpu / size * 1e9, cpu / size * 1e9, size)

    def memory(self, megabytes: int) -> None:
        """After so much was written and read."""
        self._produce(megabytes, 4)
        self._read_back(megabytes, PARTITIONS)
        self._tell(1.0, self.broker.cpu_seconds, 1)

    def latency(self, requests: int) -> None:
        """The slowest hundredth of produce requests with one small record, one after the other."""
        batch, _ = batch_of(1)
        frames = [produce_request(batch, number) for number in range(PARTITIONS)]
        times: list[float] = []
        before = self.broker.cpu_seconds
        with self.broker.connect() as connection:
            for number in range(requests + requests // _WARM_UP_PART):
                start = time.perf_counter()
                connection.send(frames[number % PARTITIONS])
                connection.receive_answer()
                times.append(time.perf_counter() - start)
                time.sleep(0.0005)
        measured = sorted(times[requests // _WARM_UP_PART :])
        self._tell(measured[len(measured) * 99 // 100], self.broker.cpu_seconds - before, 1)

    def latency_under_load(self, requests: int) -> None:
        """The same while another process writes at a steady pace."""
        self._beside([sys.executable, "-m", "bench.workers.broker_load", "paced", self.broker.bootstrap], requests)

    def _beside(self, worker: list[str], requests: int) -> None:
        paced = subprocess.Popen(worker, stdin=subprocess.DEVNULL)
        try:
            time.sleep(1.0)
            self.latency(requests)
            if paced.poll() is not None:
                raise SystemExit("the load has ended before the measurement")
        finally:
            paced.kill()
            paced.wait()

    def _produce(self, megabytes: int, connections: int) -> tuple[float, float, int]:
        """Seconds, CPU seconds of the broker, bytes."""
        batch, count = batch_of(16 << 10)
        frames = [produce_request(batch, number) for number in range(PARTITIONS)]
        each = max(1, megabytes * _MEGABYTE // len(batch) // connections)
        opened = [self.broker.connect() for _ in range(connections)]
        warm_up = each // _WARM_UP_PART
        send_all(opened, frames, warm_up, _IN_FLIGHT)
        opened = _again(self.broker, opened)
        before, start = self.broker.cpu_seconds, time.perf_counter()
        send_all(opened, frames, each, _IN_FLIGHT)
        seconds = time.perf_counter() - start
        cpu = self.broker.cpu_seconds - before
        for connection in opened:
            connection.socket.close()
        if self._count() != (each + warm_up) * connections * count:
            raise SystemExit("not all records that were sent are there")
        return seconds, cpu, each * connections * len(batch)

    def _fetch(self, megabytes: int) -> tuple[float, float, int]:
        """One partition after the other, a megabyte at a time, each twice: the first time to warm up."""
        partitions = max(1, min(PARTITIONS, megabytes // 16))
        self._fill(megabytes * _MEGABYTE, 100, partitions)
        self._read_back(megabytes, partitions)
        before, start = self.broker.cpu_seconds, time.perf_counter()
        size = self._read_back(megabytes, partitions)
        return time.perf_counter() - start, self.broker.cpu_seconds - before, size

    def _read_back(self, megabytes: int, partitions: int) -> int:
        """Returns how many bytes came. Two requests are under way at a time."""
        batch, count = batch_of(16 << 10)
        step = _MEGABYTE // len(batch) * count
        with self.broker.connect() as connection:
            ends = connection.end_offsets(PARTITIONS)
            frames = [
                fetch_request(number, offset, _MEGABYTE)
                for number in range(partitions)
                for offset in range(0, max(ends[number] - step, 1), step)
            ]
            size = 0
            connection.send(frames[0])
            for number in range(len(frames)):
                if number + 1 < len(frames):
                    connection.send(frames[number + 1])
                size += connection.receive_answer()
        if size < megabytes * _MEGABYTE // 2:
            raise SystemExit(f"only {size} bytes came back")
        return size

    def _fill(self, size_bytes: int, record_bytes: int, partitions: int = PARTITIONS) -> None:
        batch, _ = batch_of(16 << 10, record_bytes)
        frames = [produce_request(batch, number) for number in range(partitions)]
        with self.broker.connect() as connection:
            send_all([connection], frames, max(partitions, size_bytes // len(batch)), _IN_FLIGHT)

    def _count(self) -> int:
        with self.broker.connect() as connection:
            return sum(connection.end_offsets(PARTITIONS))

    def _tell(self, seconds: float, cpu_seconds: float, amount: float) -> None:
        tell(seconds, cpu_seconds, amount, peak_bytes=self.broker.memory_bytes)


def _again(broker: BrokerUnderTest, connections: list[Connection]) -> list[Connection]:
    """New connections, without answers of the last ones in them."""
    for connection in connections:
        connection.socket.close()
    return [broker.connect() for _ in connections]


def _sent_and_rate(said: str) -> tuple[int, float]:
    found = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", said)
    if not found:
        raise SystemExit(f"the tool said nothing of its rate: {said[-200:]}")
    return int(found[-1][0]), float(found[-1][1])


def _paced(bootstrap: str) -> None:
    """Produce at a steady pace until killed."""
    host, _, port = bootstrap.rpartition(":")
    batch, _ = batch_of(16 << 10)
    frames = [produce_request(batch, number) for number in range(PARTITIONS)]
    interval = len(batch) / (_PACED_MB_PER_SECOND * 1e6)
    due = time.perf_counter()
    number = 0
    with Connection((host, int(port))) as connection:
        while True:
            number += 1
            connection.send(frames[number % PARTITIONS])
            connection.receive_answer()
            due += interval
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)


LOADS: dict[str, Callable[[Load, int], None]] = {
    "producer-100": lambda load, n: load.producer_perf(n, 100, "acks=1"),
    "producer-1000": lambda load, n: load.producer_perf(n, 1000, "acks=1", "batch.size=131072"),
    "producer-idempotent": lambda load, n: load.producer_perf(
        n, 1000, "acks=all", "enable.idempotence=true", "batch.size=131072"
    ),
    "consumer-100": lambda load, n: load.consumer_perf(n, 100),
    "consumer-1000": lambda load, n: load.consumer_perf(n, 1000),
    "confluent": lambda load, n: load.confluent(n),
    "produce-1": lambda load, n: load.raw_produce(n, 1),
    "produce-4": lambda load, n: load.raw_produce(n, 4),
    "fetch": lambda load, n: load.raw_fetch(n),
    "latency": lambda load, n: load.latency(n),
    "latency-loaded": lambda load, n: load.latency_under_load(n),
    "produce-cpu": lambda load, n: load.produce_cpu(n),
    "fetch-cpu": lambda load, n: load.fetch_cpu(n),
    "tls-producer": lambda load, n: load.producer_perf(n, 1000, "acks=1", "batch.size=131072", is_encrypted=True),
    "tls-consumer": lambda load, n: load.consumer_perf(n, 1000, is_encrypted=True),
    "logins": lambda load, n: load.logins(n),
    "latency-logins": lambda load, n: load.latency_under_logins(n),
    "memory": lambda load, n: load.memory(n),
}


GUARDED = ("tls-producer", "tls-consumer", "logins", "latency-logins")
"""The loads that need listeners with TLS."""


def _start(name: str, folder: Path) -> None:
    """From the start of the process to its first answer, on a directory with the topic, closed well before."""
    with BrokerUnderTest(name, folder) as broker, broker.connect() as connection:
        connection.create_topic(PARTITIONS)
    with BrokerUnderTest(name, folder) as broker:
        tell(broker.seconds_to_first_answer, broker.cpu_seconds, 1, peak_bytes=broker.memory_bytes)


if __name__ == "__main__":
    if sys.argv[1] == "paced":
        _paced(sys.argv[2])
    broker_name, load_name, work, amount = sys.argv[1:]
    if load_name == "start":
        _start(broker_name, Path(work))
    else:
        with BrokerUnderTest(broker_name, Path(work), is_guarded=load_name in GUARDED) as started:
            LOADS[load_name](Load(started), int(amount))
