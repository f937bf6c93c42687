"""`duralog serve` in a process of its own, always on the same ports: started, killed, limited and started again.

It has a plain and a guarded listener (`tests.torture.guard`), a schema registry and `/metrics`.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from oracle.kafka_server import reserved_ports
from tests.torture import guard
from tests.torture.journal import Journal

_START_SECONDS = 120
_STOP_SECONDS = 120


class NotStarted(Exception):
    """The broker ended, or did not get ready."""


class Served:
    def __init__(self, folder: Path, environment: Mapping[str, str], journal: Journal, disks: int = 1) -> None:
        """Its log directories are in the folder `data`."""
        self.directories = [folder / "data" / f"disk-{number}" for number in range(disks)]
        self.log = folder / "broker.log"
        self._ready = folder / "ready"
        self._environment = {**os.environ, **environment}
        # No one else gets the ports while no broker has them.
        self._reserved = reserved_ports(4)
        self.address, self.guarded, self.registry, self.metrics = (
            f"127.0.0.1:{each.getsockname()[1]}" for each in self._reserved
        )
        self.tokens = guard.WebTokens(folder)
        self._journal = journal
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.slowest_start_seconds = 0.0

    def start(self, configs: Mapping[str, object]) -> None:
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "duralog", "serve", "--data", self.places, "--ready-file", str(self._ready)]
        command += ["--schema-registry", self.registry, "--schema-registry-users", str(self.tokens.path)]
        command += ["--metrics", self.metrics, "--metrics-users", str(self.tokens.path)]
        listeners = {"listeners": f"PLAINTEXT://{self.address},{guard.GUARDED}://{self.guarded}"}
        for name, value in (guard.CONFIGS | listeners | dict(configs)).items():
            command += ["--override", f"{name}={value}"]
        began = time.monotonic()
        self._journal.note("the broker is started")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > began + _START_SECONDS:
                code = self._process.poll()
                self.kill()
                self._journal.note("it did not start")
                raise NotStarted(f"exit code {code}: {self.end_of_log}")
            time.sleep(0.02)
        self._journal.note("it is ready")
        self.starts += 1
        self.slowest_start_seconds = max(self.slowest_start_seconds, time.monotonic() - began)

    @property
    def places(self) -> str:
        """The directories, as commands take them."""
        return ",".join(map(str, self.directories))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> bool:
        """Whether it was the kill that ended the process."""
        if not self.is_running:
            return False
        assert self._process is not None
        self._journal.note("the broker is killed")
        self._process.kill()
        return self._process.wait(_STOP_SECONDS) == -signal.SIGKILL

    def stop(self, how: int = signal.SIGTERM) -> int:
        """As an operator does. Returns the exit code."""
        assert self._process is not None
        self._journal.note("the broker is stopped")
        self._process.send_signal(how)
        return self._process.wait(_STOP_SECONDS)

    def signal(self, number: int) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    def limit(self, what: int, most: int | None) -> None:
        """Set a limit of the running process; None removes it."""
        _, hard = resource.prlimit(self.pid, what)
        resource.prlimit(self.pid, what, (hard if most is None else most, hard))

    @property
    def open_files(self) -> int:
        return max((int(each) for each in os.listdir(f"/proc/{self.pid}/fd")), default=0)

    @property
    def address_space(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize()

    @property
    def memory_bytes(self) -> int:
        return self._kilobytes("VmRSS") * 1024

    @property
    def most_memory_bytes(self) -> int:
        """Since the start, or the last `forget_most_memory`."""
        return self._kilobytes("VmHWM") * 1024

    def forget_most_memory(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _kilobytes(self, name: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    @property
    def end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def end(self) -> None:
        self.kill()
        for each in self._reserved:
            each.close()
