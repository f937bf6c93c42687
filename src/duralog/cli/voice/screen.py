"""Where a command shows its progress and writes its report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duralog.cli.voice.failures import say
from duralog.cli.voice.options import standard_output
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.cli.voice.progress import ProgressBar


@dataclass(frozen=True, slots=True)
class Screen:
    output: Output
    bar: ProgressBar

    def say_error(self, where: object, failure: str) -> None:
        """On standard error. The command continues."""
        self.bar.hide()
        say(f"error: {printable(f'{where}: {failure}')}")


@contextmanager
def screen(*, as_json: bool, quiet: bool, no_progress: bool) -> Iterator[Screen]:
    """The output is flushed at the end, also after an error."""
    from duralog.cli.voice.progress import ProgressBar

    output = standard_output(as_json=as_json, quiet=quiet)
    try:
        with ProgressBar(wanted=not (no_progress or quiet)) as bar:
            output.before_writing = bar.hide
            yield Screen(output, bar)
    finally:
        output.flush()
