"""The first run on a machine compiles its kernels, which takes seconds: say so."""

from __future__ import annotations

from duralog.cli.common.failures import say


def announce_compilation(*, quiet: bool) -> None:
    """From now on, tell of the first kernel that must be compiled."""
    import duralog.kernels.compile as kernels

    def announce(_: str) -> None:
        kernels.on_compile = None
        say("compiling for this machine: once, some seconds")

    kernels.on_compile = None if quiet else announce
