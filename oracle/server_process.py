"""A server in a process of its own, with a folder for its log: how it is waited for and ended, what it said and used.

The end of the block stops it as an operator does, so that its directory is left clean; an error in the block gets the
end of the server's log as a note. Kafka, `duralog serve` and `duralog console` are all run by this, in tests and
benchmarks.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

_START_SECONDS = 120
_STOP_SECONDS = 120
_NOTED_CHARACTERS = 4000
_TICKS = os.sysconf("SC_CLK_TCK")

Sign = TypeVar("Sign")


class ServerProcess:
    """`start` begins it. Use it as a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work = tempfile.TemporaryDirectory(prefix=f"duralog-{name.lower()}-")
        self.folder = Path(self._work.name)
        """For what it needs while it runs."""
        self._said = self.folder / "stdout"
        self._log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], *, folder: Path | None = None, is_log_apart: bool = False) -> None:
        """Begin it in a folder, by default its own. With `is_log_apart`, the log is without its standard output."""
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said if is_log_apart else log,
                stderr=log,
                cwd=self.folder if folder is None else folder,
            )

    def wait_for(self, sign: Callable[[], Sign | None], *, every_seconds: float = 0.02) -> Sign:
        """Return what tells that it is ready. One that ends before, or takes too long, is an error with its log."""
        deadline = time.monotonic() + _START_SECONDS
        while self.is_running and time.monotonic() < deadline:
            if (found := sign()) is not None:
                return found
            time.sleep(every_seconds)
        told = "is not ready" if self.is_running else f"ended with code {self.process.returncode}"
        self.kill()
        raise RuntimeError(f"{self._name} {told}:\n{self.said}{self.end_of_log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if error is not None:
                error.add_note(f"{self._name}'s log:\n{self.end_of_log}")
            self._work.cleanup()

    @property
    def said(self) -> str:
        """Its standard output so far, if that is apart from the log."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    @property
    def log(self) -> str:
        """What the server said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def end_of_log(self) -> str:
        return self.log[-_NOTED_CHARACTERS:]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """REQUIRES: it was started."""
        assert self._process is not None
        return self._process

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def memory_bytes(self) -> int:
        """What it has in memory now."""
        return self._memory("VmRSS")

    @property
    def peak_bytes(self) -> int:
        """The most that it has had in memory so far."""
        return self._memory("VmHWM")

    def _memory(self, kind: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            name, _, amount = line.partition(":")
            if name == kind:
                return int(amount.split()[0]) * 1024
        raise RuntimeError(f"{self._name} has ended")

    def stop(self) -> None:
        """End it as an operator does."""
        if self.is_running:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def check_ended_well(self) -> None:
        if self.process.returncode != 0:
            raise RuntimeError(f"{self._name} ended with code {self.process.returncode}:\n{self.end_of_log}")

    def kill(self) -> None:
        """In the middle of whatever it does."""
        self.process.kill()
        self.process.wait()
