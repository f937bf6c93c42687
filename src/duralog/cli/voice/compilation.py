"""A note for the first run on a machine, which compiles kernels for seconds."""

from __future__ import annotations

from duralog.cli.voice.failures import say


def announce_compilation(*, quiet: bool) -> None:
    """Print a note when the first kernel is compiled."""
    import duralog.kernels.compile as kernels

    def announce(_: str) -> None:
        kernels.on_compile = None
        say("compiling for this machine: once, some seconds")

    kernels.on_compile = None if quiet else announce
