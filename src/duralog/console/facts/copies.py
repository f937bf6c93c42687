"""The result of a comparison of the copies of a cluster's partitions, for the page of copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CopyMark:
    """The copy of a partition on a node."""

    tone: str
    """good, quiet (it ends early), warn (another history) or bad."""
    word: str
    about: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class CopiesRow:
    partition: str
    marks: Mapping[str, CopyMark]
    """By node."""
    findings: int


@dataclass(frozen=True, slots=True)
class CopyFindingRow:
    partition: str
    node: str
    finding: str
    offsets: str
    text: str
    place: str
    is_note: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesView:
    """A comparison at one moment. The object is replaced when something has changed."""

    is_running: bool = False
    share: float = 0.0
    summary: str = ""
    """Of the comparison that is done, or why it failed."""
    nodes: tuple[str, ...] = ()
    rows: tuple[CopiesRow, ...] = ()
    findings: tuple[CopyFindingRow, ...] = ()


class ClusterCopies(Protocol):
    """Any thread may call its methods; all are quick."""

    @property
    def place(self) -> str: ...

    def view(self) -> CopiesView: ...

    def compare(self) -> None:
        """Start to compare all copies, unless a comparison runs. Nothing is changed."""
