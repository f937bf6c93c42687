"""The answers of a source without log files."""

# ruff: noqa: ARG002 (refused methods have the arguments of the protocol)

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import NoReturn

from duralog.console.facts.health import QuarantineEntry
from duralog.console.facts.partitions import SegmentScan
from duralog.console.facts.runs import Rehearsal
from duralog.console.source import CompactionRun, NotFromHere, VerifyRun, always_wanted


class WithoutFiles:
    """The part of a `Source` that only a directory could answer."""

    has_files = False

    def scan_segment(
        self, topic: str, partition: int, base_offset: int, *, is_wanted: Callable[[], bool] = always_wanted
    ) -> SegmentScan:
        _not_from_here("segments")

    def known_scan(self, topic: str, partition: int, base_offset: int) -> SegmentScan | None:
        return None

    def rehearsal(self, topic: str, partition: int, *, is_wanted: Callable[[], bool] = always_wanted) -> Rehearsal:
        _not_from_here("what a compaction would do")

    def compaction_command(self, topic: str, partition: int) -> str:
        return f"duralog compact DIR --topic {shlex.quote(topic)} --partition {partition}"

    def why_no_compaction(self, topic: str, partition: int) -> str | None:
        return "A broker compacts by itself: this console cannot start a compaction there."

    def compact(self, topic: str, partition: int) -> CompactionRun:
        _not_from_here("compactions")

    def compaction(self) -> CompactionRun | None:
        return None

    def start_verify(self, topic: str | None = None, partition: int | None = None) -> VerifyRun:
        _not_from_here("files to check")

    def verification(self) -> VerifyRun | None:
        return None

    def quarantine(self) -> tuple[QuarantineEntry, ...]:
        _not_from_here("a quarantine")


def _not_from_here(what: str) -> NoReturn:
    raise NotFromHere(f"a broker does not show {what}: give its log directory with --data, too")
