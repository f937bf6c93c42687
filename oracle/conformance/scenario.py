"""The table of scenarios, and how the transcripts of one are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from oracle.conformance.dialog import Dialog, Line
from oracle.conformance.normal_form import Address
from oracle.conformance.wire import Closed

SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True)
class Scenario:
    name: str
    talk: Callable[[Dialog], None]
    module: str

    def run(self, address: Address) -> Dialog:
        dialog = Dialog(address, self.name)
        try:
            self.talk(dialog)
        except Closed:
            pass  # The transcript ends with it.
        except Exception as error:
            error.add_note(f"{self.name}, after: {dialog.transcript[-1] if dialog.transcript else 'nothing'}")
            raise
        finally:
            dialog.close()
        return dialog


def scenario(talk: Callable[[Dialog], None]) -> Callable[[Dialog], None]:
    """Into the table, under the function's name."""
    name = talk.__name__.replace("_", "-")
    SCENARIOS[name] = Scenario(name, talk, talk.__module__.rpartition(".")[2])
    return talk


def each_version(first: int, last: int) -> Callable[[Callable[[Dialog, int], None]], Callable[[Dialog, int], None]]:
    """Into the table once for each version of the API."""

    def add(talk: Callable[[Dialog, int], None]) -> Callable[[Dialog, int], None]:
        for version in range(first, last + 1):
            name = f"{talk.__name__.replace('_', '-')}-v{version}"
            SCENARIOS[name] = Scenario(name, _at(talk, version), talk.__module__.rpartition(".")[2])
        return talk

    return add


def _at(talk: Callable[[Dialog, int], None], version: int) -> Callable[[Dialog], None]:
    return lambda dialog: talk(dialog, version)


@dataclass(frozen=True)
class Difference:
    """One field that is not what Kafka answered."""

    scenario: str
    asked: str
    field: str
    kafka: object
    duralog: object

    def __str__(self) -> str:
        return f"{self.asked}\n    {self.field}: Kafka {self.kafka!r}, duralog {self.duralog!r}"


def differences(scenario: str, kafka: Iterable[Line], duralog: Iterable[Line]) -> Iterator[Difference]:
    """Until the talks part: after a question that only one of them asked nothing can be compared."""
    for expected, found in zip_longest(kafka, duralog):
        if expected is None or found is None or expected.asked != found.asked:
            asked = [None if line is None else line.asked for line in (expected, found)]
            yield Difference(scenario, "the talk goes on differently", "", *asked)
            return
        for field, one, other in _unlike(expected.answer, found.answer, ""):
            yield Difference(scenario, expected.asked, field, one, other)


_MISSING = "nothing"


def _unlike(expected: Any, found: Any, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in expected.keys() | found.keys():
            yield from _unlike(expected.get(name, _MISSING), found.get(name, _MISSING), f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(found, list):
        for number, (one, other) in enumerate(zip_longest(expected, found, fillvalue=_MISSING)):
            yield from _unlike(one, other, f"{path}[{number}]")
    elif expected != found or type(expected) is not type(found):
        yield path, expected, found
