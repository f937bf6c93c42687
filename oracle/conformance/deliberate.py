"""The differences that are meant, each with its reason. Everything else that differs is a fault."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oracle.conformance.scenario import Difference


@dataclass(frozen=True)
class Meant:
    """Patterns that the whole of a scenario's name and of a field's path match."""

    scenario: str
    field: str
    because: str

    def covers(self, difference: Difference) -> bool:
        return bool(
            re.fullmatch(self.scenario, difference.scenario) and re.fullmatch(self.field, difference.field)
        )


MEANT: tuple[Meant, ...] = ()


def is_deliberate(difference: Difference) -> bool:
    return any(meant.covers(difference) for meant in MEANT)
