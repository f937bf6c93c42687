"""The package as others get it: built from the tracked files, and installed where nothing else is.

What a build needs is what `pyproject.toml` says, fetched by pip into a folder of its own. What the installed package
needs is linked from this environment, package by package, as its own metadata and that of each dependency says: what is
not declared is not there. To fetch all of it anew takes more than a minute on a busy machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_IGNORED = shutil.ignore_patterns(
    *(".git", ".venv", "__pycache__", "*.pyc", "build", "dist", "data", "work", ".*_cache", ".hypothesis", "*.so"),
)
_COPIED = ("src", "packaging", "README.md", "LICENSE", "CHANGELOG.md", "requirements.txt", "pyproject.toml")
_COPIED_FILES = ("Dockerfile", ".dockerignore", ".gitignore", "bench/README.md")
_REQUIRED = re.compile(r"([A-Za-z0-9._-]+)[^;]*(;.*)?")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def copy_of_sources(target: Path, root: Path = ROOT) -> Path:
    """The project in another folder, as it is now: others may be at work in this one."""
    for name in _COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=_IGNORED, copy_function=shutil.copyfile)
        else:
            target.mkdir(exist_ok=True, parents=True)
            shutil.copyfile(source, target / name)
    for name in _COPIED_FILES:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(root / name, target / name)
    return target


class Builder:
    """What builds the package, as pip would call it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        pip("install", "--target", str(folder), *PROJECT["build-system"]["requires"])

    def build(self, sources: Path, target: Path, *kinds: str, **environment: str) -> list[Path]:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(target), *(f"-t{kind}" for kind in kinds)],
            cwd=sources,
            # Without machine code, which takes a minute of CPU to make.
            env={**os.environ, "PYTHONPATH": str(self._folder), "DURALOG_WHEEL": "pure", **environment},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return [next(target.glob("*.whl" if kind == "wheel" else "*.tar.gz")) for kind in kinds]

    def backend(self, sources: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program that imports the build backend."""
        searched = os.pathsep.join([str(self._folder), str(sources / "packaging")])
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=sources,
            env={**os.environ, "PYTHONPATH": searched, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


class CleanInstall:
    """A virtual environment with the wheel and what it declares, and nothing else: not even pip."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.site = next(folder.glob("lib/python*/site-packages"))
        pip("--python", str(self.python), "install", "--no-deps", "--no-index", str(wheel))
        self.linked: set[str] = set()
        (self._package,) = metadata.distributions(path=[str(self.site)], name="duralog")
        self.link_extra("")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "duralog"

    @property
    def size_bytes(self) -> int:
        """Of the package and all that it needs, as pip lays it out."""
        packages = [self._package, *map(metadata.distribution, self.linked)]
        files = {Path(str(package.locate_file(file))) for package in packages for file in package.files or ()}
        return sum(file.stat().st_size for file in files if file.is_file())

    def link_extra(self, extra: str) -> None:
        """What an extra of the package brings; without a name, what the package needs by itself."""
        for name in required_by(self._package.requires or (), extra):
            self.link(name)

    def link(self, name: str) -> None:
        """A package of this environment, and what it needs."""
        if name in self.linked:
            return
        self.linked.add(name)
        package = metadata.distribution(name)
        home = Path(sysconfig.get_path("purelib"))
        tops = {Path(file).parts[0] for file in package.files or ()}
        for top in sorted(tops - {"..", "__pycache__"}):
            if not (self.site / top).exists():
                (self.site / top).symlink_to(home / top)
        for needed in required_by(package.requires or ()):
            self.link(needed)

    def run(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """In an environment that knows of no other Python."""
        kernels = self.folder / "kernels"
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "DURALOG_CACHE_DIR": str(kernels)}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=self.folder, timeout=600, check=False
        )
        assert done.returncode == code, (command, done.stdout, done.stderr)
        return done


def required_by(requirements: Sequence[str], extra: str = "") -> list[str]:
    """Names of what is needed here: not of other extras, and not of what is for other systems or older Pythons."""
    names: list[str] = []
    for text in requirements:
        match = _REQUIRED.fullmatch(text.strip())
        assert match is not None, text
        try:
            metadata.distribution(match[1])
        except metadata.PackageNotFoundError:
            assert match[2], f"{text} is declared, and not installed"
            continue
        of_extra = _EXTRA.search(match[2] or "")
        if (of_extra[1] if of_extra else "") == extra:
            names.append(match[1].lower().replace("_", "-"))
    return names
