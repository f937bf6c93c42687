"""The levels of compatibility, and the modes, by the names of the interface."""

from __future__ import annotations

from enum import StrEnum

from duralog.broker.registry.answers import INVALID_COMPATIBILITY, INVALID_MODE, RegistryError
from duralog.schemas.compatibility import ParsedSchema, problems
from duralog.schemas.compatibility.work import Work


class Level(StrEnum):
    """Which schemas must be able to read whose records."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count, not only the latest."""
        return self.endswith("_TRANSITIVE")

    def problems(self, new: ParsedSchema, earlier: ParsedSchema, work: Work) -> list[str]:
        """Why a new schema does not go with an earlier one at this level."""
        found = []
        if self.startswith(("BACKWARD", "FULL")):
            why_not = problems(new, earlier, work)
            found += [f"the new schema cannot read the old one's records: {why}" for why in why_not]
        if self.startswith(("FORWARD", "FULL")):
            why_not = problems(earlier, new, work)
            found += [f"the old schema cannot read the new one's records: {why}" for why in why_not]
        return found

    @classmethod
    def of(cls, text: object) -> Level:
        try:
            return cls(text.upper() if isinstance(text, str) else "")
        except ValueError:
            names = ", ".join(cls)
            raise RegistryError(
                INVALID_COMPATIBILITY, f"expected a level of {names}; found {str(text)[:40]!r}"
            ) from None


class Mode(StrEnum):
    """What clients may do with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    """Schemas come with their ids and versions, from another registry."""

    @classmethod
    def of(cls, text: object) -> Mode:
        try:
            return cls(str(text).upper())
        except ValueError:
            names = ", ".join(cls)
            raise RegistryError(INVALID_MODE, f"expected a mode of {names}; found {str(text)[:40]!r}") from None
