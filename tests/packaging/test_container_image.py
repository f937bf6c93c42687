"""The Dockerfile, read as Docker reads it: that what it copies is there, and what it runs is right.

`pytest tests/packaging --image` builds and runs it, too, which takes a Docker daemon that may fetch the base image.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from typer.main import get_command

from duralog.command_line import app
from tests.packaging.clean_install import PROJECT, Builder, copy_of_sources
from tests.support.places import ROOT

DOCKERFILE = ROOT / "Dockerfile"
IMAGE = "duralog-packaging-test"
SECONDS = 60


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE.read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def last(name: str) -> str:
    """Of the stage that becomes the image."""
    return next(rest for found, rest in reversed(stages()[-1]) if found == name)


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a file of the root out. Its last rule that fits decides."""
    result = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.strip()
        if rule and not rule.startswith("#") and "**" not in rule:
            matches = rule.lstrip("!") in ("*", path)
            result = (not rule.startswith("!")) if matches else result
    return result


def options_of(command: list[str]) -> tuple[set[str], set[str]]:
    """The options that a command line gives, and those that the command has."""
    group = get_command(app)
    words = iter(command)
    while hasattr(group, "commands"):
        group = group.commands[next(words)]
    return {word for word in words if word.startswith("--")}, {one for given in group.params for one in given.opts}


def copied() -> list[str]:
    copies = [shlex.split(rest) for stage in stages() for name, rest in stage if name == "COPY"]
    return [word for words in copies if not words[0].startswith("--from") for word in words[:-1]]


def test_what_is_copied_is_enough_for_a_wheel(builder: Builder, sources: Path, tmp_path: Path) -> None:
    context = tmp_path / "context"
    for name in copied():
        place = context / name
        place.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (sources / name).is_dir() else shutil.copyfile
        copy(sources / name, place)
    assert builder.build(context, tmp_path / "built", "wheel")


def test_what_is_copied_is_there_and_not_ignored() -> None:
    sources = copied()
    assert {"src", "pyproject.toml", "requirements.txt", "LICENSE"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source
    assert ignored(".git")
    assert ignored(".venv")
    assert ignored("tests")


def test_the_commands_are_such_as_duralog_takes() -> None:
    entry, served = json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))
    assert entry == ["duralog"]
    given, known = options_of(served)
    assert given <= known
    health = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert health[0] == "duralog"
    given, known = options_of(health[1:])
    assert given <= known
    port = last("EXPOSE")
    assert health[-1] == f"127.0.0.1:{port}"
    assert f"0.0.0.0:{port}" in served
    (compiled,) = [rest for name, rest in stages()[-1] if name == "RUN" and "doctor" in rest]
    given, known = options_of(shlex.split(compiled)[1:])
    assert given == {"--compile"} <= known


def test_a_service_deletes_by_age_as_kafka_does() -> None:
    """The built-in default would hold what is due when a container starts."""
    served = json.loads(last("CMD"))
    assert served[served.index("--override") + 1] == "log.retention.hours=168"


def test_who_runs_where() -> None:
    final = [name for name, _ in stages()[-1]]
    # Kernels are kept in a folder of the user: they are compiled by who runs them.
    assert final.index("USER") < len(final) - 1 - final[::-1].index("RUN")
    assert last("USER") not in ("root", "0")
    assert last("STOPSIGNAL") == "SIGTERM"
    served = json.loads(last("CMD"))
    assert last("VOLUME") in served
    (made,) = [rest for name, rest in stages()[-1] if name == "RUN" and "useradd" in rest]
    settings = dict(word.split("=", 1) for word in last("ENV").split())
    assert f"-o {last('USER')} -g {last('USER')} -m 0700 {settings['DURALOG_CACHE_DIR']}" in made
    assert last("VOLUME") in made


def test_extras_that_are_installed() -> None:
    (install,) = [rest for stage in stages() for name, rest in stage if name == "RUN" and "pip install" in rest]
    extras = re.search(r"\.\[([a-z,]+)\]", install)
    assert extras is not None
    assert (
        {"broker", "kafka", "security"} == set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    )
    (python,) = [rest.partition("=")[2] for name, rest in instructions() if name == "ARG" and rest.startswith("PYTHON")]
    assert f"Programming Language :: Python :: {python}" in PROJECT["project"]["classifiers"]


@pytest.mark.image
def test_the_image_serves(tmp_path: Path) -> None:
    sources = copy_of_sources(tmp_path / "project")
    subprocess.run(["docker", "build", "--quiet", "--tag", IMAGE, str(sources)], check=True)
    run = subprocess.run(["docker", "run", "--detach", "--rm", IMAGE], check=True, capture_output=True, text=True)
    container = run.stdout.strip()
    try:
        end = time.monotonic() + SECONDS
        health = [*("docker", "exec", container), *json.loads(last("HEALTHCHECK").partition("CMD ")[2])]
        while subprocess.run(health, check=False).returncode:
            assert time.monotonic() < end
            time.sleep(0.5)
        said = subprocess.run(["docker", "logs", container], check=True, capture_output=True, text=True)
        assert "compiling" not in said.stderr
    finally:
        subprocess.run(["docker", "stop", container], check=True, stdout=subprocess.DEVNULL)
