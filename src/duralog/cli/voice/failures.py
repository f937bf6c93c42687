"""How every command ends, also after an error: a line on standard error, never a traceback.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | something was corrupt, missing or could not be read or written |
| 2 | the command was called wrongly |
| 130 | interrupted with Ctrl-C |
| 141 | the reader of standard output closed it before the end, as `head` does |

The last is the exit code of `cat` and `ls` after SIGPIPE. Nothing is printed, and 0 would be wrong, since the command
did not finish. Python ignores that signal, so that files are closed in order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from duralog.config.error_text import describe, printable
from duralog.errors import DuralogError, arrow_needed

FAILURE = 1
INTERRUPTED = 130
CLOSED_PIPE = 141


class CannotWrite(DuralogError):
    """The output of a command cannot be written, so the command ends."""


class WrongUsage(typer.BadParameter):
    """The command was called wrongly. The message says what to give."""

    def format_message(self) -> str:
        return self.message


def say(message: str) -> None:
    """One line for a person, on standard error."""
    print(f"duralog: {message}", file=sys.stderr)


def leave_standard_output() -> None:
    """Discard the buffered output, so that the interpreter can exit without an error: standard output is closed."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        # Standard output is not a file: a test has replaced it.
        pass


@contextmanager
def errors_shown() -> Iterator[None]:
    """Run a command's body; turn every expected failure into one line and an exit code."""
    try:
        with arrow_needed():
            yield
    except BrokenPipeError:
        leave_standard_output()
        raise typer.Exit(CLOSED_PIPE) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except MemoryError:
        say("out of memory: a smaller --max-decompressed-bytes may help")
        raise typer.Exit(FAILURE) from None
    except (DuralogError, OSError) as error:
        say(f"error: {printable(describe(error))}")
        raise typer.Exit(FAILURE) from None
