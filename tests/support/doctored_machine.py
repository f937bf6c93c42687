"""A machine that a test makes up for `duralog doctor`: healthy, until the test says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duralog.cli.doctor.compiled_kernels import KernelFacts
from duralog.cli.doctor.machine import Python, Space

ROOM = Space(100 << 30, 60 << 30, 6_000_000, 5_900_000)
COMPILED = KernelFacts("/home/me/.cache/duralog/kernels-0123", 24, 0, True)
PYTHON = Python("CPython", (3, 11, 2), 64, "/usr/bin/python3")
NOW_MS = 1_800_000_000_000
GIB = 1 << 30

MOUNTS = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
    "30 22 0:25 / /proc rw,nosuid shared:2 - proc proc rw\n"
    "40 22 8:16 / /data rw,noatime shared:3 - xfs /dev/sdb rw,attr2\n"
)
MEMORY = (
    "MemTotal:       16777216 kB\nMemFree:         8388608 kB\nMemAvailable:   12582912 kB\n"
    "Cached:          4194304 kB\n"
    "SwapTotal:             0 kB\nSwapFree:              0 kB\nHugePages_Total:       0\n"
)
REQUIREMENTS = (
    "numba>=0.62",
    "numpy>=2.0",
    "kio>=0.6.5; extra == 'broker'",
    "xxhash>=3.5; extra == 'broker'",
    "confluent-kafka>=2.11; extra == 'kafka'",
    "pyspark<4.4,>=4.3; extra == 'spark'",
    "pyiceberg[pyarrow,sql-sqlite]>=0.12; extra == 'lakehouse'",
    "confluent-kafka>=2.11; extra == 'console'",
    "nicegui<4,>=3.18; extra == 'console'",
)


def healthy_files() -> dict[str, str]:
    return {
        "/proc/self/mountinfo": MOUNTS,
        "/proc/meminfo": MEMORY,
        "/proc/self/cgroup": "0::/\n",
        "/proc/sys/vm/swappiness": "60\n",
        "/proc/sys/vm/dirty_ratio": "20\n",
        "/proc/sys/vm/dirty_bytes": "0\n",
        "/proc/sys/vm/dirty_background_ratio": "10\n",
        "/proc/sys/vm/dirty_background_bytes": "0\n",
        "/proc/sys/vm/dirty_expire_centisecs": "3000\n",
        "/proc/sys/vm/dirty_writeback_centisecs": "500\n",
        "/proc/sys/vm/max_map_count": "65530\n",
    }


@dataclass
class MadeUpMachine:
    files: dict[str, str] = field(default_factory=healthy_files)
    packages: dict[str, str] = field(
        default_factory=lambda: {"numba": "0.68.1", "numpy": "2.4.6", "kio": "0.6.5", "xxhash": "4.1.0"}
    )
    needs: Sequence[str] = REQUIREMENTS
    programs: dict[str, str] = field(default_factory=dict)
    answers: dict[tuple[str, ...], str] = field(default_factory=dict)
    open_files: int | None = 1_048_576
    room: Space | None = ROOM
    syncs: Sequence[float] | None = (0.002, 0.003, 0.0025)
    holder: str | None = None
    compiled: KernelFacts | str = COMPILED
    writable: bool = True
    python: Python = PYTHON
    environment: Mapping[str, str] = field(default_factory=lambda: {"HOME": "/home/me"})
    now_ms: int = NOW_MS

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def package_version(self, name: str) -> str | None:
        return self.packages.get(name)

    def requirements(self) -> Sequence[str]:
        return self.needs

    def find_program(self, name: str) -> str | None:
        return self.programs.get(name)

    def run(self, *command: str) -> str | None:
        return self.answers.get(command)

    def most_open_files(self) -> int | None:
        return self.open_files

    def space(self, _path: str) -> Space | None:
        return self.room

    def may_write(self, _path: str) -> bool:
        return self.writable

    def sync_seconds(self, _path: str, _count: int) -> Sequence[float] | None:
        return self.syncs

    def holder_of(self, _lock: str) -> str | None:
        return self.holder

    def kernels(self) -> KernelFacts | str:
        return self.compiled
