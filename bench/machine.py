"""The machine and versions that the figures were measured with."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata

from oracle.kafka_jars import KAFKA_VERSION, java_version

_PACKAGES = (
    "duralog",
    "numba",
    "numpy",
    "pyarrow",
    "cramjam",
    "crc32c",
    "aiokafka",
    "kafka-python",
)


def describe() -> dict[str, str]:
    facts = {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "system": platform.system(),
        "Python": platform.python_version(),
        "Apache Kafka": KAFKA_VERSION,
        "Java": _java(),
    }
    for package in _PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _java() -> str:
    try:
        return java_version()
    except (OSError, subprocess.CalledProcessError):
        return "not installed"
