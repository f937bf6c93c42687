"""The contents of a schema registry, for the pages of subjects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.registered_schema import DEFAULT_CONTEXT, context_of

DEFAULT_LEVEL = "BACKWARD"
"""Of a registry in which none is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectsView:
    origin: str
    """Where the schemas come from: a topic, or the address of a registry."""
    catalogue: SchemaCatalogue = field(default_factory=SchemaCatalogue)
    levels: Mapping[str, str] = field(default_factory=dict)
    """Compatibility by subject; `""` is the level of all others, and `:.context:` that of a context."""
    is_there: bool = True
    """Whether there is a topic `_schemas`, or a registry."""
    trouble: str | None = None
    """Why the schemas cannot be read."""

    def level(self, subject: str) -> tuple[str, str]:
        """The level of compatibility of a subject, and whose it is: the subject's, its context's, or the default."""
        if subject in self.levels:
            return self.levels[subject], "subject"
        context = context_of(subject)
        if context != DEFAULT_CONTEXT and f":{context}:" in self.levels:
            return self.levels[f":{context}:"], "context"
        if "" in self.levels:
            return self.levels[""], "all subjects"
        return DEFAULT_LEVEL, "default"


def topic_of(subject: str, topics: frozenset[str]) -> str | None:
    """The topic that a subject is named after: `orders-value`, `orders-key` or `orders-com.example.Order`."""
    name = subject
    if context_of(subject) != DEFAULT_CONTEXT:
        name = subject[1:].partition(":")[2]
    at = len(name)
    while (at := name.rfind("-", 0, at)) > 0:
        if name[:at] in topics:
            return name[:at]
    return None
