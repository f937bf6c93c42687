"""`duralog doctor`: checks whether this machine suits a log, and says what to change.

This module is the command; `python`, `kernels`, `memory`, `process`, `disk` and `directory` have the checks, and ask
the operating system through `machine`.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import FAILURE, errors_shown, say
from duralog.cli.voice.options import HOW, AsJson, Data, Directory, Quiet, local_directory_given, standard_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duralog.cli.doctor.check import Check
    from duralog.cli.doctor.machine import Machine
    from duralog.cli.voice.output import Output

_LEVEL_WIDTH = 4
_NARROWEST = 30
_COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}
_PLAIN = "\x1b[0m"


def doctor(
    directory: Directory = None,
    data: Data = None,
    why: Annotated[bool, typer.Option("--why", help="Also explain the checks that pass.", rich_help_panel=HOW)] = False,
    compile_kernels: Annotated[
        bool,
        typer.Option("--compile", help="First compile the kernels that are not compiled yet.", rich_help_panel=HOW),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check this machine and a directory, and say what to change.

    Checks Python and packages, Java for Spark, kernels, memory and the page cache, and limits; with DIR, which need not
    exist yet, its disk and fsync, the process that holds it, and whether it was closed cleanly. Only --compile changes
    anything; fsync is measured with an unnamed file in DIR. --quiet shows only warnings and failures.

    Exit code: 0 nothing fails (warnings do not count), 1 something does, 2 wrong usage, 130 interrupted.
    """
    # Without a directory, only the machine is checked.
    path = None if directory is None and data is None else local_directory_given(directory, data)
    with errors_shown():
        from duralog.cli.doctor.check import Level
        from duralog.cli.doctor.machine import ThisMachine

        if compile_kernels:
            from duralog.cli.doctor.compiled_kernels import compile_all

            compile_all(lambda name: None if quiet else say(f"compiling {name}"))
        output = standard_output(as_json=as_json, quiet=quiet)
        checks = list(all_checks(ThisMachine(), path))
        write_checks(output, checks, why=why)
        output.flush()
        if any(check.level is Level.FAIL for check in checks):
            raise typer.Exit(FAILURE)


def all_checks(machine: Machine, directory: str | None) -> Iterator[Check]:
    """In the order in which they are shown."""
    from duralog.cli.doctor.directory import DirectoryFacts, directory_checks, read_directory
    from duralog.cli.doctor.disk import disk_checks
    from duralog.cli.doctor.kernels import kernel_checks
    from duralog.cli.doctor.memory import memory_checks
    from duralog.cli.doctor.process import process_checks
    from duralog.cli.doctor.python import python_checks

    facts = DirectoryFacts("/", is_there=False) if directory is None else read_directory(directory)
    yield from python_checks(machine)
    yield from kernel_checks(machine)
    yield from memory_checks(machine, segments=facts.segments, log_bytes=facts.log_bytes)
    yield from process_checks(machine, partitions=facts.partitions, segments=facts.segments)
    if directory is not None:
        yield from disk_checks(machine, facts.path)
        yield from directory_checks(machine, facts)


def write_checks(output: Output, checks: Sequence[Check], *, why: bool) -> None:
    """A line for each check, and under warnings and failures the reason and what to change. With `quiet`, only
    these.
    """
    from duralog.cli.doctor.check import Level
    from duralog.cli.voice.terminal import shows_colours

    counts = Counter(check.level for check in checks)
    if output.as_json:
        for check in checks:
            output.object(check.to_dict())
        output.object({"kind": "summary", **{level.value: counts[level] for level in Level}})
        return
    colours = _COLOURS if shows_colours(sys.stdout) else {}
    width = max(len(check.name) for check in checks)
    for check in checks:
        is_well = check.level is Level.OK
        if is_well and output.quiet:
            continue
        level = f"{colours.get(check.level, '')}{check.level.ljust(_LEVEL_WIDTH)}{_PLAIN if colours else ''}"
        lines = [check.found]
        if why or not is_well:
            lines += [f"why: {check.why}", *([f"do:  {check.change}"] if check.change else [])]
        indent = " " * (_LEVEL_WIDTH + 2 + width + 2)
        first, *others = (line for text in lines for line in _wrapped(text, output.width, len(indent)))
        output.line(f"{level}  {check.name.ljust(width)}  {first}".rstrip())
        for line in others:
            output.line(indent + line)
    output.heading(_summary(counts[Level.FAIL], counts[Level.WARN], len(checks)))


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    """On a terminal, in lines that fit after the indent. Commands are to be copied, so no word is broken."""
    if width is None or width - indent < _NARROWEST:
        return [text]
    hanging = " " * 5 if text.startswith(("why: ", "do:  ")) else ""
    return textwrap.wrap(
        text, width - indent, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _summary(fails: int, warnings: int, checks: int) -> str:
    from duralog.cli.voice.tables import plural

    if not fails and not warnings:
        return f"{plural(checks, 'check')}: all is well"
    words = [f"{fails} {'fails' if fails == 1 else 'fail'}"] if fails else []
    words += [plural(warnings, "warning")] if warnings else []
    return f"{plural(checks, 'check')}: {', '.join(words)}"
