"""A job next to its stored result: values, ratios, verdicts and the limit. `report` and `details` put them into words.

Titles, texts, units and targets come from the job as it is declared, only the figures from `results.json`: a new target
or a better sentence needs a rendering, not a measurement. A job that measures something else has to be run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.job import Contender, Job, Target

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    reached: float | None
    """The median, or the ratio of a target with `than`; None if it was not measured."""
    is_met: bool
    share: float
    """How much of the target is reached: 1 is just met."""


@dataclass(frozen=True, slots=True)
class Limit:
    name: str
    value: float
    is_per_thread: bool


class Measured:
    def __init__(self, job: Job, result: Json) -> None:
        self.job = job
        self.run: Json = result["run"]
        self.stored: dict[str, Json] = {one["name"]: one for one in result["contenders"]}

    def median(self, name: str) -> float | None:
        value = self.stored.get(name, {}).get("median")
        return None if value is None else float(value)

    def failure(self, name: str) -> str:
        """Why there is no median."""
        return str(self.stored.get(name, {}).get("failure", "not measured"))

    def ratio(self, name: str, other: str) -> float | None:
        value, reference = self.median(name), self.median(other)
        return None if value is None or reference is None else self.job.unit.speed_ratio(value, reference)

    @property
    def peers(self) -> Sequence[Contender]:
        return [one for one in self.job.contenders if one.is_peer and one.name != self.job.limit]

    @property
    def ours(self) -> Sequence[Contender]:
        return [one for one in self.job.contenders if not one.is_peer and one.name != self.job.limit]

    @property
    def verdicts(self) -> Sequence[Verdict]:
        return [self._verdict(target) for target in self.job.targets]

    def _verdict(self, target: Target) -> Verdict:
        # A peer that could not be measured was not beaten.
        if target.than is not None:
            reached = self.ratio(target.contender, target.than)
            share = 0.0 if reached is None else reached / target.bound
        else:
            reached = self.median(target.contender)
            share = 0.0 if reached is None else self.job.unit.speed_ratio(reached, target.bound)
        return Verdict(target, reached, share >= 1, share)

    @property
    def limit(self) -> Limit | None:
        if self.job.limit is None:
            return None
        own = self.median(self.job.limit)
        if own is not None:
            return Limit(self.job.limit, own, is_per_thread=False)
        of_machine = limits(self.run).get(self.job.limit)
        return None if of_machine is None else Limit(self.job.limit, of_machine, is_per_thread=True)


def limits(run: Mapping[str, Any]) -> dict[str, float]:
    """The machine's limits as this run measured them, in GB/s on one thread."""
    return {one["name"]: float(one["median"]) for one in run["limits"]["contenders"] if "median" in one}
