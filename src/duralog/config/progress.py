"""The progress protocol of all operations and user interfaces.

    def show(progress: Progress) -> None: ...

    compact(request, executor, on_progress=show)

An operation may report richer values, such as `CompactionProgress`. All have these fields, so that every user interface
can show them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """How much of one step of the work is done."""

    @property
    def step(self) -> Hashable:
        """What `done` counts. When it changes, counting starts again, and so does the measurement of the speed."""

    @property
    def label(self) -> str:
        """What is being worked on, such as a partition."""

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int | None:
        """None if it is not known."""

    @property
    def unit(self) -> str | None:
        """What is counted, such as `partition`: empty if it has no name, None for bytes."""

    @property
    def detail(self) -> str:
        """Further figures, shown if there is room."""


OnProgress = Callable[[Progress], None]
"""Called a few times a second, in the thread that waits for the work. An error that it raises ends the work."""


def ignore(_: Progress) -> None:
    """A callback that shows no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The simplest `Progress`: done and total."""

    label: str
    done: int
    total: int | None
    unit: str | None = None
    step: Hashable = None
    detail: str = ""
