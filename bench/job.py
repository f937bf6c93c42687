"""The parts of a benchmark. A new job is a module in `bench/jobs`, named in `bench/jobs/__init__.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import data
from oracle.kafka_jars import class_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a job may use to prepare a run."""

    records: int
    """Records in a segment."""
    passes: int
    """Passes of a process that times itself, without the warm-up."""
    scratch: Path
    """A new empty folder, removed after the run."""

    def segment(self, codec: str) -> data.Segment:
        return data.segment(codec, self.records)

    def kafka_class_path(self) -> str:
        return class_path()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process to measure. With `amount`, the whole process is timed, from its start to its end.

    Without, it times itself and prints one JSON object a line for each pass over the data: `seconds`, `cpu_seconds`,
    `amount`, and `peak_bytes` if it is not this process alone. The first `warm_up` passes are left out and the median
    of the others is taken.
    """

    command: Sequence[str]
    amount: float | None = None
    warm_up: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contender:
    """One implementation or mode that does the job. `prepare` is called before every run and is not measured.

    A mode follows a comma: `duralog, 2 threads` is compared with `Kafka, 2 threads` where both are measured.
    """

    name: str
    prepare: Callable[[Setting], Run]
    is_peer: bool = False
    """Another program, not duralog."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a result is given in: amount per second, seconds, peak memory, or the amount itself."""

    name: str
    scale: float = 1.0
    is_rate: bool = True
    is_memory: bool = False
    is_amount: bool = False

    def value(self, amount: float, seconds: float, peak_bytes: float) -> float:
        if self.is_memory:
            return peak_bytes / self.scale
        if self.is_amount:
            return amount / self.scale
        return (amount / seconds if self.is_rate else seconds) / self.scale

    def speed_ratio(self, value: float, other: float) -> float:
        """How many times better than the other value: faster, or less where less is better."""
        return value / other if self.is_rate else other / value


GIGABYTES = Unit("GB/s", 1e9)
MEGABYTES = Unit("MB/s", 1e6)
MILLION_RECORDS = Unit("M records/s", 1e6)
SECONDS = Unit("s", is_rate=False)
MICROSECONDS = Unit("us", 1e-6, is_rate=False)
PERCENT_OF_BYTES = Unit("% of the bytes", 0.01, is_rate=False, is_amount=True)
PEAK_MEGABYTES = Unit("MB of memory", 1e6, is_rate=False, is_memory=True)


@dataclass(frozen=True, slots=True)
class Target:
    """`bound` for `contender`: at least for a rate, at most for seconds. With `than`: at least this ratio to it."""

    contender: str
    bound: float
    than: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    title: str
    unit: Unit
    about: str
    """What is measured, on what data, and what is not counted: a paragraph of the report."""
    contenders: Sequence[Contender]
    compare_with: str | None = None
    """The contender that the ratios are given against."""
    limit: str | None = None
    """What no program can beat on this machine: a contender of this job, or one of `limits` in the same unit."""
    targets: Sequence[Target] = ()
    rounds: int | None = None
    """Fewer than usual, for slow work."""
    is_slow: bool = False
    """Half the rounds, rounded up: one in a quick run."""
