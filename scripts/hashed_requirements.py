"""The pinned requirements with the hashes of the files that they may come from, for `pip install --require-hashes`.

    python scripts/hashed_requirements.py requirements.txt    print a requirement file with its hashes
    python scripts/hashed_requirements.py --update            ask the package index for the hashes: `make requirements`

Requirement files name versions and stay readable; the hashes stand in `requirements.sha256`, one line for each
requirement, for Linux and the Pythons that duralog supports. The index is the one that pip is configured for. This runs
before anything is installed, so it uses the standard library alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "requirements.sha256"
_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)")
_PYTHON = re.compile(r"cp31[1-9]-.*|cp3\d+-abi3|(.*\.)?py3(\..*)?-none")
"""Tags of the interpreter and its interface: a wheel of the stable interface names its first Python."""
_PLATFORM = re.compile(r"any|(many|musl)?linux.*_(x86_64|aarch64)")


def requirements(path: Path) -> Iterator[tuple[str, str, str]]:
    """The line, normalised name and version of each requirement of a file, and of the files that it names."""
    for line in path.read_text().splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("-r "):
            yield from requirements(path.parent / line.removeprefix("-r ").strip())
        elif line:
            match = _PIN.match(line)
            if match is None:
                raise SystemExit(f"{path.name}: {line!r} is not pinned as name==version")
            yield line, _normalised(match[1]), match[2]


def hashed(path: Path) -> Iterator[str]:
    """The lines of a requirement file with their hashes."""
    hashes = {pin: found for pin, *found in map(str.split, HASHES.read_text().splitlines())}
    for line, name, version in requirements(path):
        if f"{name}=={version}" not in hashes:
            raise SystemExit(f"{HASHES.name} has no hash for {name}=={version}: run `make requirements`")
        yield " ".join([line, *(f"--hash=sha256:{each}" for each in hashes[f"{name}=={version}"])])


def update() -> None:
    """Write the hashes of all requirement files."""
    index = _index()
    wanted = sorted({found[1:] for path in ROOT.glob("requirements*.txt") for found in requirements(path)})
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pin: _hashes(index, *pin), wanted))
    lines = [f"{name}=={version} {' '.join(each)}\n" for (name, version), each in zip(wanted, found, strict=True)]
    HASHES.write_text("".join(lines))
    print(f"{HASHES.name}: {len(lines)} requirements, {sum(map(len, found))} files")


class _Links(HTMLParser):
    """The hashes of the files of one project, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.sha256: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        path, _, digest = (dict(attrs).get("href") or "").partition("#sha256=")
        if tag == "a" and digest:
            self.sha256[path.rsplit("/", 1)[-1]] = digest


def _hashes(index: str, name: str, version: str) -> list[str]:
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        links = _Links()
        links.feed(answer.read().decode())
    found = sorted(digest for file, digest in links.sha256.items() if _fits(file, name, version))
    if not found:
        raise SystemExit(f"{name}=={version}: the package index has no file of this version for Linux")
    return found


def _fits(file: str, name: str, version: str) -> bool:
    if not file.endswith(".whl"):
        stem = file.removesuffix(".tar.gz").removesuffix(".zip")
        return _normalised(stem) == _normalised(f"{name}-{version}")
    _, found, *_, python, interface, platforms = file.removesuffix(".whl").split("-")
    return (
        found == version
        and _PYTHON.fullmatch(f"{python}-{interface}") is not None
        and any(_PLATFORM.fullmatch(each) for each in platforms.split("."))
    )


def _normalised(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def _index() -> str:
    if "PIP_INDEX_URL" in os.environ:
        return os.environ["PIP_INDEX_URL"]
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if configured:
        return configured
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    else:
        print("\n".join(hashed(ROOT / sys.argv[1])))
