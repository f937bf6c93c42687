"""What a benchmark is made of. A new job is a module in `bench/jobs`, named in `bench/jobs/__init__.py`."""

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
    """How many records a segment holds."""
    passes: int
    """How many times a process that times itself is to do its work, warm-up not counted."""
    scratch: Path
    """A new empty folder that is removed after the run."""

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
    """Somebody who does the job. `prepare` is called before every run and is not measured."""

    name: str
    prepare: Callable[[Setting], Run]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a result is given in: the amount in a second, the seconds, the peak of memory, or the amount itself."""

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
        """How many times as fast as the other one."""
        return value / other if self.is_rate else other / value


GIGABYTES = Unit("GB/s", 1e9)
MEGABYTES = Unit("MB/s", 1e6)
MILLION_RECORDS = Unit("M records/s", 1e6)
SECONDS = Unit("s", is_rate=False)
MICROSECONDS = Unit("us", 1e-6, is_rate=False)
PERCENT_OF_BYTES = Unit("% of the bytes", 0.01, is_rate=False, is_amount=True)
PEAK_MEGABYTES = Unit("MB of memory at most", 1e6, is_rate=False, is_memory=True)


@dataclass(frozen=True, slots=True)
class Target:
    """`contender` reaches `bound`: at least for a rate, at most for seconds. With `than`: that many times as fast."""

    contender: str
    bound: float
    than: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    title: str
    unit: Unit
    about: str
    """What is measured, on what, and what is left out: a paragraph of the report."""
    contenders: Sequence[Contender]
    compare_with: str | None = None
    """The contender that the ratios are given against."""
    targets: Sequence[Target] = ()
    rounds: int | None = None
    """Fewer than usual, for slow work."""
    is_slow: bool = False
    """Half the rounds, rounded up: one in a quick run."""
