"""Compares two versions of a subject: fields, lines, and whether each can read the other's records.

The verdicts are those of `duralog.schemas.compatibility`, by which the registry of `duralog serve` accepts schemas.
Compiling Protobuf takes half a second: not for the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from duralog.broker.registry.levels import Level
from duralog.config.error_text import printable
from duralog.console.drawing.schema_difference import FieldChange, Line, field_changes, laid_out, lines_of
from duralog.console.drawing.schema_fields import Fields, fields_of
from duralog.console.facts.schemas import SubjectsView
from duralog.errors import DuralogError
from duralog.schemas.compatibility import ParsedSchema, parse, problems
from duralog.schemas.registered_schema import SubjectVersion

_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    question: str
    """`Version 3 reads records of version 2`."""
    problems: tuple[str, ...] | None
    """None if unknown: a schema does not parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    older: SubjectVersion
    newer: SubjectVersion
    fields: tuple[FieldChange, ...]
    lines: tuple[Line, ...]
    verdicts: tuple[Verdict, ...]
    level: str
    """Of the subject."""
    is_level_met: bool | None
    """Whether the newer version is compatible with the older one at this level. None if unknown."""
    trouble: str | None = None
    """Why the versions cannot be compared by their meaning."""


def compare(view: SubjectsView, one: SubjectVersion, other: SubjectVersion) -> Comparison:
    """The version with the larger number is the newer one."""
    older, newer = sorted((one, other), key=lambda each: each.version)
    level, _ = view.level(newer.subject)
    lines = lines_of(*(laid_out(each.schema.type, each.schema.text) for each in (older, newer)))
    try:
        read, written = _parsed(view, newer), _parsed(view, older)
        fields = field_changes(_fields(older, written), _fields(newer, read))
        backward, forward = problems(read, written), problems(written, read)
    except DuralogError as error:
        fields = field_changes(*(fields_of(each.schema.type, each.schema.text) for each in (older, newer)))
        verdicts = _verdicts(older, newer, None, None)
        return Comparison(
            older=older,
            newer=newer,
            fields=tuple(fields),
            lines=tuple(lines),
            verdicts=verdicts,
            level=level,
            is_level_met=None,
            trouble=printable(str(error)),
        )
    return Comparison(
        older=older,
        newer=newer,
        fields=tuple(fields),
        lines=tuple(lines),
        verdicts=_verdicts(older, newer, backward, forward),
        level=level,
        is_level_met=_is_met(level, backward, forward),
    )


def _parsed(view: SubjectsView, version: SubjectVersion) -> ParsedSchema:
    return parse(version.schema, view.catalogue.resolve(version.schema))


def _fields(version: SubjectVersion, parsed: ParsedSchema) -> Fields:
    return fields_of(version.schema.type, version.schema.text, parsed.content)


def _verdicts(
    older: SubjectVersion, newer: SubjectVersion, backward: list[str] | None, forward: list[str] | None
) -> tuple[Verdict, ...]:
    def verdict(reader: SubjectVersion, writer: SubjectVersion, found: list[str] | None) -> Verdict:
        return Verdict(
            question=f"Version {reader.version} reads records of version {writer.version}",
            problems=None if found is None else tuple(printable(each) for each in found[:_MOST_PROBLEMS]),
        )

    return verdict(newer, older, backward), verdict(older, newer, forward)


def _is_met(name: str, backward: list[str], forward: list[str]) -> bool | None:
    try:
        level = Level.of(name)
    except DuralogError:
        return None
    if level.startswith(("BACKWARD", "FULL")) and backward:
        return False
    return not (level.startswith(("FORWARD", "FULL")) and forward)
