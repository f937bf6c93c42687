"""What is done to a broker under load, one kind of trouble after the other. Each leaves a broker that can be started.

A round gets the broker, its interposer and chance. What the broker may do depends on the trouble: answer with errors,
close connections, even end. It may not lose what it has acknowledged, and after a restart it must work.
"""

from __future__ import annotations

import errno
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.support.broker.raw_client import RawClient
from tests.torture.clients import PARTITIONS
from tests.torture.frames import Outcome, mutants, send_frames
from tests.torture.http_requests import ask_badly
from tests.torture.interposer import Interposer
from tests.torture.log_ins import intrude
from tests.torture.served import NotStarted, Served

CONFIGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "log.retention.ms": -1,
    "log.cleaner.backoff.ms": 200,
    "log.index.size.max.bytes": 65_536,
}
ALTER_REPLICA_LOG_DIRS = 34
MOST_GROWN_BYTES = 384 << 20
MOVED = PARTITIONS | {"__consumer_offsets": 3, "__transaction_state": 3}
HOSTILE: tuple[dict[str, object], ...] = (
    {"log.flush.interval.messages": 1},
    {"queued.max.requests": 1, "num.io.threads": 1, "background.threads": 1},
    {"log.index.interval.bytes": 1, "log.index.size.max.bytes": 1024},
    {"log.cleaner.threads": 4, "log.cleaner.backoff.ms": 1, "log.cleaner.dedupe.buffer.size": 8_388_608},
    {"max.incremental.fetch.session.cache.slots": 1, "fetch.max.bytes": 1024},
    {"log.segment.delete.delay.ms": 0, "log.flush.offset.checkpoint.interval.ms": 100},
    {"connections.max.idle.ms": 500},
    {"log.roll.ms": 200, "log.preallocate": "true"},
)
"""Configs that make everything slower or tighter, and must lose nothing."""
WRONG = (
    "num.partitions=0",
    "log.segment.bytes=-1",
    "log.index.interval.bytes=-1",
    "no.such.config=1",
    "log.cleanup.policy=none",
)
"""Overrides that a start must refuse, without harm."""


@dataclass
class Stage:
    """What a round works with, and what it counts."""

    served: Served
    interposer: Interposer | None
    random: Random
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    grown_bytes: int = 0
    """By how much more memory the broker took at most during HTTP requests."""

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def wait(self, shortest: float, longest: float) -> None:
        time.sleep(self.random.uniform(shortest, longest))

    def start(self, configs: dict[str, object] | None = None) -> None:
        """Start the broker where every call works."""
        if self.interposer is not None:
            self.interposer.work()
        self.served.start(CONFIGS | (configs or {}))

    def kill(self) -> None:
        """It counts only what really ended by the kill."""
        self.count("kills", int(self.served.kill()))

    def restart(self) -> None:
        self.kill()
        self.start()


def kills(stage: Stage) -> None:
    """SIGKILL, at once after a start or after a while."""
    for _ in range(3):
        stage.wait(0, 1.5)
        stage.restart()


def stops(stage: Stage) -> None:
    """Clean stops, by either signal: the exit code is 0."""
    for how in (signal.SIGTERM, signal.SIGINT):
        stage.wait(0.1, 1)
        code = stage.served.stop(how)
        stage.count("clean stops")
        if code != 0:
            stage.findings.append(f"a clean stop ended with exit code {code}: {stage.served.end_of_log}")
        stage.start()


def pauses(stage: Stage) -> None:
    for _ in range(3):
        stage.served.signal(signal.SIGSTOP)
        stage.wait(0.05, 1)
        stage.served.signal(signal.SIGCONT)
        stage.wait(0.05, 0.5)
        stage.count("pauses")


def failing_calls(stage: Stage) -> None:
    """Some of the calls fail, some of the time, while it runs and while it starts."""
    assert stage.interposer is not None
    kinds = ("fsync", "write", "short write", "truncate", "rename", "unlink", "open", "read", "allocate")
    for _ in range(2):
        chosen = stage.random.sample(kinds, stage.random.randint(1, 4))
        chances = {kind: stage.random.choice((0.005, 0.05, 0.3)) for kind in chosen}
        stage.interposer.fail(stage.random.choice((errno.EIO, errno.EIO, errno.ENOSPC, errno.EDQUOT)), chances)
        stage.wait(0.5, 2)
        if stage.random.random() < 0.5:
            stage.kill()
            try:
                stage.served.start(CONFIGS)
            except NotStarted:
                stage.count("starts that failed")
        stage.interposer.work()
        stage.restart()


def full_disk(stage: Stage) -> None:
    """No room for anything: when there is room again, everything works without a restart."""
    assert stage.interposer is not None
    stage.interposer.fail(errno.ENOSPC, {"write": 1, "truncate": 0.5, "allocate": 1})
    stage.wait(0.5, 2)
    stage.interposer.work()
    stage.count("full disks")


def read_only_disk(stage: Stage) -> None:
    assert stage.interposer is not None
    stage.interposer.fail(
        errno.EROFS, dict.fromkeys(("write", "fsync", "truncate", "rename", "unlink", "allocate"), 1.0)
    )
    stage.wait(0.5, 2)
    stage.interposer.work()
    stage.count("read-only disks")
    # What an fsync has failed for is unknown until the files are checked.
    stage.restart()


def clock_jumps(stage: Stage) -> None:
    assert stage.interposer is not None
    for _ in range(4):
        stage.interposer.set_clock(stage.random.choice((-6, -1, 1, 6)) * 3_600_000 + stage.random.randrange(10**6))
        stage.wait(0.1, 0.6)
        stage.count("clock jumps")
    stage.interposer.work()


def no_descriptors(stage: Stage) -> None:
    stage.served.limit(resource.RLIMIT_NOFILE, stage.served.open_files + stage.random.choice((1, 3, 8)))
    stage.wait(0.5, 2)
    stage.served.limit(resource.RLIMIT_NOFILE, None)
    stage.count("exhaustions of descriptors")


def no_memory(stage: Stage) -> None:
    stage.served.limit(resource.RLIMIT_AS, stage.served.address_space + stage.random.choice((0, 2**16, 2**20)))
    stage.wait(1, 3)
    if stage.served.is_running:
        stage.served.limit(resource.RLIMIT_AS, None)
    stage.count("exhaustions of memory")


def no_threads(stage: Stage) -> None:
    """None for a running broker, then few for one that starts."""
    assert stage.interposer is not None
    stage.interposer.fail(errno.EAGAIN, {"thread": 1})
    stage.wait(0.5, 2)
    stage.interposer.fail(errno.EAGAIN, {"thread": 0.2})
    stage.kill()
    try:
        stage.served.start(CONFIGS)
        stage.wait(0.1, 1)
    except NotStarted:
        stage.count("starts that failed")
        stage.start()
    stage.interposer.work()
    stage.count("exhaustions of threads")


def mutated_frames(stage: Stage) -> None:
    _count_mutants(stage, "mutated frames", send_frames(stage.served.address, mutants(stage.random)))


def guarded_frames(stage: Stage, most: int | None = None) -> None:
    """To the guarded listener, around a log-in."""
    for when, outcome in intrude(stage.served.address, stage.served.guarded, stage.random, most).items():
        _count_mutants(stage, f"mutated frames {when}", outcome)


def http_requests(stage: Stage, most: int | None = None) -> None:
    """To the schema registry and `/metrics`. The memory of the broker may grow by some bodies, decoded."""
    before = stage.served.memory_bytes
    stage.served.forget_most_memory()
    for where, outcome in ask_badly(stage.served, stage.random, most).items():
        _count_mutants(stage, f"mutated requests to {where}", outcome)
    if stage.served.is_running:
        grown = stage.served.most_memory_bytes - before
        stage.grown_bytes = max(stage.grown_bytes, grown)
        if grown > MOST_GROWN_BYTES:
            stage.findings.append(f"HTTP requests let the broker grow by {grown:,} bytes, not {MOST_GROWN_BYTES:,}")


def _count_mutants(stage: Stage, what: str, outcome: Outcome) -> None:
    stage.count(what, outcome.sent)
    stage.count(f"{what} that were answered", outcome.answered)
    stage.count(f"{what} that cost their connection", outcome.closed)
    stage.findings += outcome.findings
    if not stage.served.is_running:
        stage.findings.append(f"{what} ended the broker: {stage.served.end_of_log}")


def hostile_configs(stage: Stage) -> None:
    stage.kill()
    name, _, value = stage.random.choice(WRONG).partition("=")
    try:
        stage.served.start({**CONFIGS, name: value})
        stage.findings.append(f"{name}={value} was accepted")
        stage.served.kill()
    except NotStarted:
        stage.count("wrong configs refused")
    stage.start(stage.random.choice(HOSTILE))
    stage.count("hostile configs")
    stage.wait(1, 3)
    stage.restart()


def moves(stage: Stage) -> None:
    """Partitions move from disk to disk while they are written to, internal ones too. One kill comes in between."""
    partitions = [(topic, number) for topic, count in MOVED.items() for number in range(count)]
    kill_after = stage.random.randrange(4)
    for move in range(4):
        path = str(stage.random.choice(stage.served.directories))
        asked: dict[str, list[int]] = {}
        for topic, number in stage.random.sample(partitions, 4):
            asked.setdefault(topic, []).append(number)
        topics = [{"name": name, "partitions": numbers} for name, numbers in asked.items()]
        host, _, port = stage.served.address.rpartition(":")
        with RawClient(host, int(port)) as client:
            answer = client.ask(ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [{"path": path, "topics": topics}]})
        codes = [each.error_code for topic in answer.results for each in topic.partitions]
        stage.count("moves", codes.count(0))
        stage.wait(0, 0.5)
        if move == kill_after:
            stage.restart()


Round = Callable[[Stage], None]
ROUNDS: tuple[Round, ...] = (
    kills,
    failing_calls,
    mutated_frames,
    full_disk,
    guarded_frames,
    stops,
    read_only_disk,
    pauses,
    http_requests,
    clock_jumps,
    no_descriptors,
    hostile_configs,
    no_memory,
    no_threads,
    moves,
)
NEED_INTERPOSER = frozenset({failing_calls, full_disk, read_only_disk, clock_jumps, no_threads})
NEED_DISKS = frozenset({moves})
