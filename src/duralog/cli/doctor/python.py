"""Checks Python, its packages and extras, and Java for Spark.

The versions that work are those in the metadata of duralog's own package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17

_EXTRAS = {
    "broker": "duralog serve, and duralog.testing",
    "arrow": "Arrow tables, duralog.scan, duralog stats",
    "kafka": "commands on a running broker (HOST:PORT)",
    "spark": 'duralog job, and spark.read.format("duralog")',
    "lakehouse": "tables of Delta and Iceberg",
    "console": "duralog console",
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*([^;]*?)\s*(?:;\s*(.*))?")
_BOUND = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9][0-9A-Za-z.+!-]*)")
_EXTRA_MARK = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')

_PYTHON = Subject("python", "duralog and its compiled parts are made for CPython from 3.11 on, on 64 bits")
_PACKAGES = Subject("packages", "native code of these packages reads, checks and compresses a log")
_JAVA = Subject("java", "Spark runs on Java, from version 17 on")
_WORKERS = Subject("PYSPARK_PYTHON", "Spark starts its Python workers with it: they need duralog, and the same Python")


class Requirement(NamedTuple):
    name: str
    bounds: tuple[tuple[str, str], ...]
    extra: str | None

    def allows(self, version: str) -> bool:
        return all(_holds(version, sign, bound) for sign, bound in self.bounds)

    def __str__(self) -> str:
        return self.name + ",".join(f"{sign}{bound}" for sign, bound in self.bounds)


def parse_requirement(text: str) -> Requirement | None:
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None:
        return None
    extra = _EXTRA_MARK.search(match[3] or "")
    return Requirement(match[1], tuple(_BOUND.findall(match[2])), extra[1] if extra else None)


def python_checks(machine: Machine) -> Iterator[Check]:
    yield _python(machine)
    wanted = [found for text in machine.requirements() if (found := parse_requirement(text)) is not None]
    yield _packages(machine, [one for one in wanted if one.extra is None])
    for extra, use in _EXTRAS.items():
        others = {one.name for one in wanted if one.extra not in (None, extra)}
        yield _extra(machine, extra, use, [one for one in wanted if one.extra == extra], others)
    yield _java(machine)
    yield _workers(machine)


def _python(machine: Machine) -> Check:
    python = machine.python
    found = f"{python.implementation} {'.'.join(map(str, python.version))}, {python.bits} bits"
    if python.version[:2] < OLDEST_PYTHON or python.bits != 64 or python.implementation != "CPython":
        return _PYTHON.fail(found, "install a 64-bit CPython 3.11 or newer, and duralog with its pip")
    return _PYTHON.ok(found)


def _packages(machine: Machine, wanted: list[Requirement]) -> Check:
    if not wanted:
        return _PACKAGES.warn("duralog has no package metadata: it was not installed by pip", "pip install duralog")
    bad = list(_wrong(machine, wanted))
    if bad:
        return _PACKAGES.fail("; ".join(bad), "pip install --upgrade duralog")
    return _PACKAGES.ok(", ".join(f"{one.name} {machine.package_version(one.name)}" for one in wanted))


def _extra(machine: Machine, extra: str, use: str, wanted: list[Requirement], others: set[str]) -> Check:
    """`others` are packages of other extras: they alone do not mean that this one was installed."""
    subject = Subject(f"duralog[{extra}]", f"it is for {use}")
    install = f"pip install --upgrade 'duralog[{extra}]'"
    there = {one.name: version for one in wanted if (version := machine.package_version(one.name)) is not None}
    own = [one.name for one in wanted if one.name not in others] or list(there)
    if there.keys().isdisjoint(own):
        return subject.ok(f"not installed; it is for {use}", install)
    bad = list(_wrong(machine, wanted))
    if bad:
        return subject.warn("; ".join(bad), install)
    return subject.ok(", ".join(f"{name} {version}" for name, version in there.items()))


def _wrong(machine: Machine, wanted: list[Requirement]) -> Iterator[str]:
    for one in wanted:
        version = machine.package_version(one.name)
        if version is None:
            yield f"{one.name} is missing"
        elif not one.allows(version):
            yield f"{one.name} is {version}, it takes {one}"


def _java(machine: Machine) -> Check:
    if machine.package_version("pyspark") is None:
        return _JAVA.ok("not needed: Spark is not installed")
    home = machine.environment.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else machine.find_program("java")
    where = f"JAVA_HOME is {home}" if home else f"{program}"
    install = "apt-get install default-jre-headless, or set JAVA_HOME to a Java of version 17 or newer"
    if program is None:
        return _JAVA.fail("there is none: no JAVA_HOME, and no java on the PATH", install)
    said = machine.run(program, "-version")
    version = _JAVA_VERSION.search(said or "")
    if version is None:
        return _JAVA.fail(f"{where}: {program} -version reports no version", install)
    found = f"{int(version[1])} ({where})"
    return _JAVA.ok(found) if int(version[1]) >= OLDEST_JAVA else _JAVA.fail(found, install)


def _workers(machine: Machine) -> Check:
    if machine.package_version("pyspark") is None:
        return _WORKERS.ok("not needed: Spark is not installed")
    chosen = machine.environment.get("PYSPARK_PYTHON")
    own = machine.python
    if chosen is None:
        return _WORKERS.ok(
            "not set: duralog's own sessions use this Python; in others, Spark takes the python3 of the PATH",
            f"for sessions of your own: export PYSPARK_PYTHON={own.executable}",
        )
    change = f"export PYSPARK_PYTHON={own.executable}, or unset it"
    said = machine.run(chosen, "-c", "import sys; print(sys.version_info[:2])")
    if said is None:
        return _WORKERS.fail(f"{chosen}: cannot be run", change)
    if said.strip() != str(own.version[:2]):
        return _WORKERS.fail(f"{chosen} is Python {_dotted(said)}, this is {own.version[0]}.{own.version[1]}", change)
    if machine.run(chosen, "-c", "import duralog") is None:
        return _WORKERS.fail(f"{chosen} has no duralog", f"{chosen} -m pip install 'duralog[spark]'")
    return _WORKERS.ok(chosen)


def _dotted(said: str) -> str:
    return ".".join(re.findall(r"\d+", said)) or "of unknown version"


def _holds(version: str, sign: str, bound: str) -> bool:
    found, wanted = _release(version), _release(bound)
    width = max(len(found), len(wanted))
    one = found + (0,) * (width - len(found))
    other = wanted + (0,) * (width - len(wanted))
    match sign:
        case ">=":
            return one >= other
        case "<=":
            return one <= other
        case "==":
            return one == other
        case "!=":
            return one != other
        case ">":
            return one > other
        case "<":
            return one < other
        case _:
            return one >= other and one[: len(wanted) - 1] == wanted[:-1]


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version: `2.9.post0` is 2.9. A pre-release counts as its release."""
    match = re.match(r"\d+(?:\.\d+)*", version.rpartition("!")[2])
    return tuple(map(int, match[0].split("."))) if match else ()
