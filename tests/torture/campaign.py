"""A campaign: clients that work without end, a broker that is tortured in rounds, and in the end one report.

After each round the broker must run and acknowledge again. In the end it is killed once more, all topics are read by a
client, the history is checked, and the directory is verified after a clean stop.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic

from tests.torture import guard
from tests.torture.checker import Anomaly, check, check_copies
from tests.torture.clients import (
    COPIES,
    LATEST,
    LISTS,
    PARTITIONS,
    SINGLES,
    Client,
    CopyClient,
    ListClient,
    Progress,
    ReadClient,
    SingleClient,
    list_name,
    read_all,
)
from tests.torture.history import History, Reading
from tests.torture.interposer import Interposer, is_available
from tests.torture.journal import Journal, Stall
from tests.torture.rounds import CONFIGS, NEED_DISKS, NEED_INTERPOSER, ROUNDS, Round, Stage
from tests.torture.served import NotStarted, Served

_PATIENCE_SECONDS = 120
_FINISH_SECONDS = 300
_PROGRESS = 2
"""What each client must achieve after a round."""
_KINDS = ("lost", "duplicated", "dirty", "torn", "unwritten", "reordered", "unstable", "skipped")
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "65536"}
_SOON_COMPACTED = _COMPACTED | {"internal.segment.bytes": "16384"}
_TOPIC_CONFIGS = {LISTS: _COMPACTED, LATEST: _SOON_COMPACTED, SINGLES: {"internal.segment.bytes": "65536"}, COPIES: {}}


@dataclass
class Report:
    seed: int
    seconds: float = 0.0
    rounds: Counter[str] = field(default_factory=Counter)
    tried: int = 0
    acknowledged: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    """Of the clients with transactions, by outcome."""
    singles: Counter[str] = field(default_factory=Counter)
    """Appends of the idempotent producer, by outcome."""
    copies: int = 0
    """Transactions that the group has committed."""
    read: int = 0
    """Values that the reader has seen."""
    latest_acknowledged: int = 0
    latest_left: int = 0
    """What the compaction has left of them."""
    longest_stall: Stall | None = None
    stall_lines: list[str] = field(default_factory=list)
    """What the longest stall was."""
    starts: int = 0
    slowest_start_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    grown_bytes: int = 0
    """By how much more memory the broker took at most during HTTP requests."""
    failed_calls: dict[str, int] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.findings

    def lines(self) -> Iterator[str]:
        kinds = Counter(each.kind for each in self.anomalies)
        yield f"seed {self.seed}, {self.seconds:.0f} s, {sum(self.rounds.values())} rounds, {self.starts} starts"
        yield f"tried {self.tried:,}, acknowledged {self.acknowledged:,}"
        yield ", ".join(f"{kind} {kinds[kind]}" for kind in _KINDS)
        stall = 0 if self.longest_stall is None else self.longest_stall.seconds
        yield f"longest stall {stall:.1f} s, slowest start {self.slowest_start_seconds:.1f} s"
        yield "transactions: " + _listed(self.transactions)
        yield "single appends: " + _listed(self.singles)
        yield f"transactions of the group: {self.copies:,} committed; values that the reader saw: {self.read:,}"
        yield f"compacted topic: {self.latest_acknowledged:,} acknowledged, {self.latest_left:,} left"
        yield "rounds: " + _listed(self.rounds)
        if self.counts:
            yield "done: " + _listed(self.counts)
        if self.grown_bytes:
            yield f"memory during HTTP requests: {self.grown_bytes / 2**20:.0f} MiB more at most"
        if self.failed_calls:
            yield "system calls that failed: " + _listed(self.failed_calls)
        yield "longest stall:"
        yield from (f"  {line}" for line in self.stall_lines)
        for anomaly in self.anomalies[:20]:
            yield f"{anomaly.kind.upper()}: {anomaly.what}"
        for finding in self.findings:
            yield f"FOUND: {finding}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


class Campaign:
    def __init__(self, folder: Path, seed: int, disks: int = 1) -> None:
        self.report = Report(seed)
        self._random = Random(seed)
        self._journal = Journal()
        self._interposer = Interposer(folder, folder / "data", seed, self._journal) if is_available() else None
        environment = {} if self._interposer is None else self._interposer.environment
        self._served = Served(folder, environment, self._journal, disks)
        self._history = History()
        self._progress = Progress()

    def run(self, seconds: float, rounds: Sequence[Round] = ROUNDS) -> Report:
        """Rounds in turn until the time is over, and each kind once."""
        usable = [
            each
            for each in rounds
            if (self._interposer is not None or each not in NEED_INTERPOSER)
            and (len(self._served.directories) > 1 or each not in NEED_DISKS)
        ]
        stage = Stage(self._served, self._interposer, self._random)
        began = time.monotonic()
        with self._ended():
            stage.start()
            self._create_topics()
            clients = self._clients()
            for client in clients:
                client.start()
            try:
                self._wait_for_progress(stage, clients, "the first start")
                number = 0
                while number < len(usable) or time.monotonic() < began + seconds:
                    self._play(usable[number % len(usable)], stage, clients)
                    number += 1
                stage.restart()
                self._wait_for_progress(stage, clients, "the last start")
            finally:
                self._finish(clients)
            self._conclude(clients)
        report = self.report
        report.seconds = time.monotonic() - began
        report.longest_stall = self._progress.longest_stall
        report.stall_lines = self._journal.explained(self._progress.longest_stall)
        report.starts, report.slowest_start_seconds = self._served.starts, self._served.slowest_start_seconds
        report.counts = stage.counts
        report.findings += stage.findings
        report.grown_bytes = stage.grown_bytes
        report.failed_calls = {} if self._interposer is None else self._interposer.failed
        self._count(clients)
        return report

    def _count(self, clients: list[Client]) -> None:
        report, progress = self.report, self._progress
        report.tried, report.acknowledged = progress.tried, progress.acknowledged.total()
        transactions = self._history.transactions
        report.transactions = Counter(each.outcome.value for each in transactions if not each.is_single)
        report.singles = Counter(each.outcome.value for each in transactions if each.is_single)
        report.copies = sum(progress.acknowledged[each.name] for each in clients if isinstance(each, CopyClient))
        report.read = progress.read.total()

    @contextmanager
    def _ended(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._served.end()

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._served.address})
        topics = [NewTopic(name, count, 1, config=_TOPIC_CONFIGS[name]) for name, count in PARTITIONS.items()]
        for made in admin.create_topics(topics).values():
            made.result(_PATIENCE_SECONDS)
        guard.create_users(admin)

    def _clients(self) -> list[Client]:
        """A writer and the group log in, as users with few rights and with all."""
        # Stalls count from now.
        self._progress = progress = Progress()
        history = self._history
        plain, guarded = {"bootstrap.servers": self._served.address}, self._served.guarded
        lister, admin = guard.scram_log_in(guarded, guard.LISTER), guard.plain_log_in(guarded, guard.ADMIN)
        seeds = [self._random.getrandbits(32) for _ in range(6)]
        lists = [
            ListClient(name, lister if name == guard.LISTER else plain, progress, seeds[n], history)
            for n, name in enumerate(("lister-0", "lister-1", "lister-2"))
        ]
        return [
            *lists,
            SingleClient("single", plain, progress, seeds[3], history),
            ReadClient("reader", plain, progress, seeds[4], history),
            CopyClient("copier", admin, progress, seeds[5]),
        ]

    def _play(self, play: Round, stage: Stage, clients: list[Client]) -> None:
        name = play.__name__.replace("_", " ")
        self.report.rounds[name] += 1
        self._journal.note(f"round: {name}")
        play(stage)
        if self._interposer is not None:
            self._interposer.work()
        if not self._served.is_running:
            stage.count("ends of the broker by itself")
            stage.start()
        self._wait_for_progress(stage, clients, play.__name__)

    def _wait_for_progress(self, stage: Stage, clients: list[Client], after: str) -> None:
        """Every client must get on. A broker that leaves one without an answer gets one restart, and a finding."""
        for is_last in (False, True):
            goals = {each.name: self._progress.of(each.name) + _PROGRESS for each in clients}
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while late := [each for each in clients if self._progress.of(each.name) < goals[each.name]]:
                if time.monotonic() > deadline or any(each.failure is not None for each in late):
                    break
                time.sleep(0.05)
            else:
                return
            names = ", ".join(each.name for each in late)
            stage.findings.append(f"{names} did not get on after {after}: {self._served.end_of_log}")
            if is_last:
                raise RuntimeError(stage.findings[-1])
            stage.restart()

    def _finish(self, clients: list[Client]) -> None:
        # The copier and the reader last: they follow what the others have written.
        for group in ([each for each in clients if not isinstance(each, CopyClient | ReadClient)], clients):
            for client in group:
                client.finish()
            deadline = time.monotonic() + _FINISH_SECONDS
            for client in group:
                client.join(max(deadline - time.monotonic(), 0))
                if client.is_alive():
                    self.report.findings.append(f"{client.name} does not come to its end")

    def _conclude(self, clients: list[Client]) -> None:
        findings = self.report.findings
        findings += [f"{each.name} failed: {each.failure!r}" for each in clients if each.failure is not None]
        self._served.kill()
        if self._interposer is not None:
            self._interposer.work()
        try:
            self._served.start(CONFIGS)
        except NotStarted as error:
            findings.append(f"the broker does not start any more: {error}")
            return
        final = {topic: read_all({"bootstrap.servers": self._served.address}, topic) for topic in PARTITIONS}
        for topic in (LISTS, SINGLES):
            for number, seen in final[topic].items():
                values = [(offset, value) for offset, _, value in seen]
                self._history.readings.append(Reading("last", list_name(topic, number), values, is_complete=True))
        self.report.anomalies = check(self._history)
        self._check_copies(final)
        self._check_latest(final, clients)
        self._check_rights()
        code = self._served.stop()
        if code != 0:
            findings.append(f"the last stop ended with exit code {code}")
        for directory in self._served.directories:
            command = [sys.executable, "-m", "duralog", "verify", str(directory), "--quiet"]
            verified = subprocess.run(command, capture_output=True, text=True, check=False)
            if verified.returncode != 0:
                findings.append(f"duralog verify: {verified.stdout[-2000:]}{verified.stderr[-2000:]}")

    def _check_rights(self) -> None:
        """Nothing has the intruder's name but the user and its one right."""
        mine = sorted(each for each in guard.cluster_state(self._served.address) if guard.INTRUDER in each)
        if [each.partition(":")[0] for each in mine] != ["acls", "users"]:
            self.report.findings.append(f"expected the intruder's access control and user, found {mine}")

    def _check_copies(self, final: dict[str, dict[int, list[tuple[int, bytes | None, str]]]]) -> None:
        for number, singles in final[SINGLES].items():
            values, copies = ([value for _, _, value in each] for each in (singles, final[COPIES][number]))
            self.report.anomalies += check_copies(list_name(SINGLES, number), values, copies)

    def _check_latest(
        self, final: dict[str, dict[int, list[tuple[int, bytes | None, str]]]], clients: list[Client]
    ) -> None:
        """The compacted topic has each key's last acknowledged value, or a later one that was sent."""
        (client,) = (each for each in clients if isinstance(each, SingleClient))
        self.report.latest_acknowledged, self.report.latest_left = client.latest_count, len(final[LATEST][0])
        if len(final[LATEST][0]) >= client.latest_count:
            self.report.findings.append(f"nothing was compacted: all {client.latest_count} records are left")
        latest: dict[str, int] = {}
        for _, key, value in final[LATEST][0]:
            assert key is not None
            if int(value) < latest.get(key.decode(), 0):
                self.report.anomalies.append(Anomaly("reordered", f"{key!r} went back to {value}"))
            latest[key.decode()] = int(value)
        for name, number in client.acknowledged_latest.items():
            if latest.get(name, 0) < number:
                found = latest.get(name)
                self.report.anomalies.append(Anomaly("lost", f"{name} is {found}, {number} was acknowledged"))
            elif latest[name] > client.sent_latest[name]:
                self.report.anomalies.append(Anomaly("unwritten", f"{name} is {latest[name]}, which was never sent"))
