"""Java, Kafka's jars and our compiled Java programs, each fetched or built once.

The jars and the classes live in a cache outside the tree: `$DURALOG_CACHE_DIR`, or `duralog` in the user's cache
folder. Each folder there is named by a digest of what it was made from, made under another name and renamed when it is
complete: a folder that exists is whole. One process makes it and the others wait, since neither Maven nor apt-get can
be run twice at a time. Once it exists, neither Maven nor the network is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

KAFKA_VERSION = "4.3.1"
OLDEST_JAVA = 17

_HERE = Path(__file__).parent
_POM = _HERE / "pom.xml"
_CONNECTOR_POM = _HERE / "spark_connector" / "pom.xml"
_MIRROR_MAKER_POM = _HERE / "mirror_maker" / "pom.xml"
_DEBEZIUM_POM = _HERE / "debezium" / "pom.xml"
_APICURIO_POM = _HERE / "apicurio" / "pom.xml"
_GLUE_POM = _HERE / "glue" / "pom.xml"
_APICURIO_SERDE_POMS = {version: _HERE / "apicurio_serde" / f"serde{version}.xml" for version in (2, 3)}
_SOURCES = _HERE / "java"
_PROGRAMS = "programs.jar"
_ARCHIVE = "kafka.jsa"
_TRIES = 3
"""A network may fail once, and Maven keeps what it has got."""
_DEBIAN_PACKAGES = {"java": "openjdk-17-jdk-headless", "javac": "openjdk-17-jdk-headless", "mvn": "maven"}


class KafkaMissingError(Exception):
    """Kafka cannot be run here. The text says why, and what to do."""


def cache_folder() -> Path:
    chosen = os.environ.get("DURALOG_CACHE_DIR")
    if chosen:
        return Path(chosen) / f"kafka-{KAFKA_VERSION}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "duralog" / f"kafka-{KAFKA_VERSION}"


def class_path() -> str:
    """The class path of Kafka and of the programs in `java/`, after making sure that all of it is there."""
    jars = _made_once("jars", [_POM], _fetch_jars)
    programs = _made_once("programs", [_POM, *_java_sources()], lambda folder: _compile(folder, jars))
    _require("java")
    _check_java_version()
    return f"{programs}{os.sep}*{os.pathsep}{jars}{os.sep}*"


def class_archive(make: Callable[[Path], None]) -> Path:
    """Classes that a JVM on `class_path()` can map, which saves it the loading. `make` writes the file it is given."""
    _require("java")
    java = Path(str(shutil.which("java"))).resolve()
    release = java.parents[1] / "release"
    inputs = [_POM, *_java_sources(), release if release.exists() else java]
    return _made_once("class-archive", inputs, lambda folder: make(folder / _ARCHIVE)) / _ARCHIVE


def spark_connector_jars() -> list[Path]:
    """Spark's own Kafka connector and Avro functions, and what they need beside Spark."""
    folder = _made_once("spark-connector", [_CONNECTOR_POM], lambda folder: _fetch(_CONNECTOR_POM, folder))
    return sorted(folder.glob("*.jar"))


def mirror_maker_class_path() -> str:
    """MirrorMaker 2, with the log settings of our programs."""
    folder = _made_once("mirror-maker", [_MIRROR_MAKER_POM], lambda folder: _fetch(_MIRROR_MAKER_POM, folder))
    return f"{_SOURCES}{os.pathsep}{folder}{os.sep}*"


def debezium_class_path() -> str:
    """Debezium's engine, Kafka Connect's converters and Apicurio's. `debezium/ChangeEvents.java` runs on it."""
    folder = _made_once("debezium", [_DEBEZIUM_POM], lambda folder: _fetch(_DEBEZIUM_POM, folder))
    return f"{folder}{os.sep}*"


def glue_class_path() -> str:
    """AWS Glue's serializer for Kafka. The programs in `glue/` run on it."""
    folder = _made_once("glue", [_GLUE_POM], lambda folder: _fetch(_GLUE_POM, folder))
    return f"{folder}{os.sep}*"


def apicurio_serde_class_path(version: int) -> str:
    """Apicurio's serializers for Kafka, 2 or 3. The programs in `apicurio_serde/` run on them."""
    pom = _APICURIO_SERDE_POMS[version]
    return f"{_made_once(f'apicurio-serde{version}', [pom], lambda folder: _fetch(pom, folder))}{os.sep}*"


def apicurio_registry_jar() -> Path:
    """Apicurio's registry, which keeps its schemas in memory. `java -jar` starts it."""

    def make(folder: Path) -> None:
        _fetch(_APICURIO_POM, folder)
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            archive.unlink()

    return next(_made_once("apicurio", [_APICURIO_POM], make).glob("*-runner.jar"))


def java_version() -> str:
    """What `java` says of itself, in one line."""
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return answer.stderr.splitlines()[0]


def _java_sources() -> list[Path]:
    return sorted(_SOURCES.iterdir())


def _made_once(kind: str, inputs: Iterable[Path], make: Callable[[Path], None]) -> Path:
    folder = cache_folder() / f"{kind}-{_digest(inputs)}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder.parent / "being-made.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix=f"{kind}-", suffix=".unfinished", dir=folder.parent))
            try:
                make(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _digest(inputs: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _fetch(pom: Path, folder: Path) -> None:
    _require("java")
    _require("mvn")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    complaint = f"Maven could not fetch what {pom.parent.name}/{pom.name} names"
    for tries_left in reversed(range(_TRIES)):
        try:
            _run(command, complaint)
            break
        except KafkaMissingError:
            if not tries_left:
                raise


def _fetch_jars(folder: Path) -> None:
    _fetch(_POM, folder)
    if not list(folder.glob(f"kafka-clients-{KAFKA_VERSION}.jar")):
        raise KafkaMissingError(f"Maven ended well but brought no kafka-clients-{KAFKA_VERSION}.jar")


def _compile(folder: Path, jars: Path) -> None:
    """One jar: a folder on the class path would keep Java from archiving what it has loaded."""
    _require("javac")
    sources = [path for path in _java_sources() if path.suffix == ".java"]
    with tempfile.TemporaryDirectory(prefix="duralog-javac-") as classes:
        command = ["javac", "-Xlint:all", "-Werror", "-proc:none", "-d", classes, "-cp", f"{jars}{os.sep}*"]
        _run([*command, *map(str, sources)], "javac refused the oracle's sources")
        files = [*Path(classes).iterdir(), *(path for path in _java_sources() if path.suffix != ".java")]
        with zipfile.ZipFile(folder / _PROGRAMS, "w") as jar:
            for path in sorted(files):
                jar.write(path, path.name)


def _run(command: list[str], complaint: str) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        raise KafkaMissingError(f"{complaint} (exit code {result.returncode}):\n{result.stdout[-2000:]}")


def _check_java_version() -> None:
    line = java_version()
    number = re.search(r'"(?:1\.)?(\d+)', line)
    if number is None or int(number[1]) < OLDEST_JAVA:
        raise KafkaMissingError(f"Kafka {KAFKA_VERSION} needs Java {OLDEST_JAVA} or later; found: {line}")


def _require(program: str) -> None:
    if shutil.which(program):
        return
    package = _DEBIAN_PACKAGES[program]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise KafkaMissingError(
            f"`{program}` is not on the PATH. Install a JDK of version {OLDEST_JAVA} or later and Maven"
            f" (on Debian: apt-get install {' '.join(sorted(set(_DEBIAN_PACKAGES.values())))})"
        )
    print(f"installing {package}, for `{program}`", file=sys.stderr)
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    _run([*quiet, "update"], "apt-get update failed")
    _run([*quiet, "install", "--no-install-recommends", package], f"apt-get could not install {package}")
