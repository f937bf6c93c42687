"""A note for the first run on a machine, which takes seconds to compile kernels."""

from __future__ import annotations

from duralog.cli.voice.failures import say


def announce_compilation(*, quiet: bool) -> None:
    """Print a note when the first kernel is compiled."""
    import duralog.kernels.compile as kernels

    has_said = quiet

    def announce(_: str) -> None:
        nonlocal has_said
        if not has_said:
            has_said = True
            say("compiling for this machine, once: this takes some seconds")

    kernels.on_compile = announce
