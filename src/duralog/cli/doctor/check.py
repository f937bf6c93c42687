"""One thing that `duralog doctor` looked at: what it found, why that matters, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works, and could work better or more safely."""
    FAIL = "fail"
    """Something does not work, or data is in danger."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Level
    found: str
    why: str
    """Why it matters to a log on the page cache, whatever was found."""
    change: str = ""
    """The command to run, or the file and the value to set; empty where there is nothing to change."""

    def to_dict(self) -> Mapping[str, str]:
        return {
            "kind": "check",
            "name": self.name,
            "level": self.level.value,
            "found": self.found,
            "why": self.why,
            "change": self.change,
        }


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at, and why: the part of a check that is the same whatever is found."""

    name: str
    why: str

    def ok(self, found: str, change: str = "") -> Check:
        return Check(self.name, Level.OK, found, self.why, change)

    def warn(self, found: str, change: str) -> Check:
        return Check(self.name, Level.WARN, found, self.why, change)

    def fail(self, found: str, change: str) -> Check:
        return Check(self.name, Level.FAIL, found, self.why, change)


def sysctl(*settings: str) -> str:
    """How kernel settings are changed, now and for good."""
    return (
        f"sysctl -w {' '.join(settings)}; to keep it, the same lines in /etc/sysctl.d/90-duralog.conf"
        if len(settings) > 1
        else f"sysctl -w {settings[0]}; to keep it, the same line in /etc/sysctl.d/90-duralog.conf"
    )
