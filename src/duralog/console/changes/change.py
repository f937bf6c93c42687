"""A change that a user requests: its preview, the equivalent command, and its execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from duralog.broker.security.web_users import Role
from duralog.errors import DuralogError
from duralog.operations.target import Target

MOST_ROWS = 500
"""The most rows of a preview; the rest is counted."""


class WrongInput(DuralogError):
    """The input of a field is invalid. The message says what to enter."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    sentence: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    has_effect: bool = True
    """Whether there is anything to do."""


class Change(Protocol):
    @property
    def role(self) -> Role:
        """What a user needs to make it."""

    def arguments(self, where: Sequence[str]) -> list[str]:
        """The arguments of the equivalent `duralog` command; `where` names the directory or broker."""

    def input(self) -> str | None:
        """The standard input of that command, if it needs one."""

    def preview(self, target: Target) -> Preview:
        """Reads only. Raises the errors of `carry_out`, as far as they are known beforehand."""

    def carry_out(self, target: Target) -> str:
        """Returns a sentence about what was done."""


class WithoutInput:
    """A change whose command needs no standard input."""

    __slots__ = ()

    def input(self) -> str | None:
        return None
