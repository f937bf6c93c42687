"""One check of `duralog doctor`: what it found, why that matters, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works, but could be faster or safer."""
    FAIL = "fail"
    """It does not work, or data is at risk."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Level
    found: str
    why: str
    """Why it matters to a log on the page cache."""
    change: str = ""
    """The command to run, or the file and the value to set; empty if nothing needs to change."""

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
    """The name and the reason of a check, which do not depend on its result."""

    name: str
    why: str

    def ok(self, found: str, change: str = "") -> Check:
        return Check(self.name, Level.OK, found, self.why, change)

    def warn(self, found: str, change: str) -> Check:
        return Check(self.name, Level.WARN, found, self.why, change)

    def fail(self, found: str, change: str) -> Check:
        return Check(self.name, Level.FAIL, found, self.why, change)


def sysctl(*settings: str) -> str:
    """How to change kernel settings, now and permanently."""
    return (
        f"sysctl -w {' '.join(settings)}; to keep it, the same lines in /etc/sysctl.d/90-duralog.conf"
        if len(settings) > 1
        else f"sysctl -w {settings[0]}; to keep it, the same line in /etc/sysctl.d/90-duralog.conf"
    )
