"""What a check of files reports: findings, which are errors, and notes, which are not.

A finding is a `CorruptRecord` that is not raised: file, position, expected, found. Checks pass each one to an
`OnFinding` as they find it, so that a caller can print, count or collect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from duralog.config.plurals import plural
from duralog.errors import CorruptRecord

SHOWN_PER_FILE = 20
"""A file of garbage has a finding for each of its entries: the first ones are enough."""
COLLECTED_PER_FILE = 5
"""If many files are checked."""

OnFinding = Callable[[CorruptRecord], None]


class TakeNote(Protocol):
    """Takes the path of a file, a sentence about it, and what a program wants to know of it."""

    def __call__(self, file: str, text: str, /, **fields: int) -> None: ...


class Note(NamedTuple):
    file: str
    text: str
    fields: Mapping[str, int] = MappingProxyType({})

    def to_dict(self) -> dict[str, object]:
        return {"note": self.text, "file": self.file, **self.fields}


class FewPerFile:
    """Passes on the first findings of each file and counts the rest."""

    def __init__(self, report: OnFinding, *, shown: int = SHOWN_PER_FILE) -> None:
        self._report = report
        self._shown = shown
        self._counts: Counter[str] = Counter()

    def __call__(self, error: CorruptRecord) -> None:
        file = error.file or ""
        self._counts[file] += 1
        if self._counts[file] <= self._shown:
            self._report(error)

    @property
    def count(self) -> int:
        """All that there were."""
        return self._counts.total()

    def left_out(self) -> list[Note]:
        """How many findings of which file were not passed on."""
        return [
            Note(file, f"{plural(count - self._shown, 'more finding')} not shown", {})
            for file, count in self._counts.items()
            if count > self._shown
        ]


class Findings:
    """Collects findings, of each file the first ones, and notes."""

    def __init__(self) -> None:
        self.errors: list[CorruptRecord] = []
        self._notes: list[Note] = []
        self.report = FewPerFile(self.errors.append, shown=COLLECTED_PER_FILE)

    @property
    def count(self) -> int:
        """Of all findings, also those that are not in `errors`."""
        return self.report.count

    @property
    def notes(self) -> list[Note]:
        return [*self._notes, *self.report.left_out()]

    def note(self, file: str, text: str, /, **fields: int) -> None:
        self._notes.append(Note(file, text, fields))


def unreadable(path: str, error: OSError) -> CorruptRecord:
    """What the system says about a file or folder that must be readable."""
    file = error.filename if isinstance(error.filename, str) else path
    return CorruptRecord("cannot be read", file=file, expected="that it can be read", found=error.strerror)
