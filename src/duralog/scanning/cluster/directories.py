"""The log directories of a cluster, as people name them: paths, globs and manifests.

    backup/broker-1/data        a log directory, or its URL
    backup/broker-*/data*       a glob; also on an object store: s3://backup/broker-*/data*
    backup.json                 a manifest: {"directories": [...]}, each one a path, a URL or a glob

Paths in a manifest are relative to its folder. A directory that is named twice, also through a symbolic link, counts
once.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate

from duralog.errors import InvalidConfig, StorageError
from duralog.scanning.cluster.problems import Problem, ProblemKind
from duralog.scanning.locations import Location, is_url

_MAGIC = re.compile(r"[*?[]")
_LARGEST_MANIFEST_BYTES = 16 << 20

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def is_of_cluster(path: Paths) -> bool:
    """Whether this names the directories of a cluster, and not just one log directory."""
    if not isinstance(path, str | os.PathLike):
        return True
    text = os.fspath(path)
    return _is_manifest(text) or _is_glob(text)


def find_directories(
    paths: Paths, storage_options: Mapping[str, str] | None = None
) -> tuple[list[Location], list[Problem]]:
    """The directories in the order in which they are named; globs are sorted. Problems are directories named twice."""
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Location] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    texts = list(_written_out(os.fspath(path) for path in named))
    has_urls = any(map(is_url, texts))
    for text in texts:
        # Next to those of an object store, local directories take no storage options.
        options = None if has_urls and not is_url(text) else storage_options
        for location in _matches(text, options):
            identity = location.url if location.is_remote else os.path.realpath(location.url)
            if identity in seen:
                problems.append(
                    Problem(
                        ProblemKind.GIVEN_TWICE,
                        location.url,
                        f"this is {seen[identity]}, which was given before: it counts once",
                    )
                )
            else:
                seen[identity] = location.url
                found.append(location)
    if not found:
        raise InvalidConfig("no log directory was given: give the log.dirs of the cluster's nodes")
    return found, problems


def _written_out(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if _is_manifest(text):
            yield from _in_manifest(text)
        else:
            yield text


def _is_manifest(text: str) -> bool:
    return text.endswith(".json") and not is_url(text) and not os.path.isdir(text)


def _in_manifest(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.loads(file.read(_LARGEST_MANIFEST_BYTES))
    except OSError as error:
        raise StorageError(f"{path}: cannot read the manifest: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfig(f"{path}: the manifest is not JSON: {error}") from None
    directories = manifest.get("directories") if isinstance(manifest, dict) else None
    if not isinstance(directories, list) or not all(isinstance(each, str) and each for each in directories):
        raise InvalidConfig(
            f'{path}: a manifest is an object with a list of paths, as {{"directories": ["broker-1/data"]}}'
        )
    folder = os.path.dirname(path)
    return [each if is_url(each) else os.path.join(folder, each) for each in directories]


def _is_glob(text: str) -> bool:
    return _MAGIC.search(text) is not None and (is_url(text) or not os.path.exists(text))


def _matches(text: str, storage_options: Mapping[str, str] | None) -> list[Location]:
    if not _is_glob(text):
        return [Location.of(text, storage_options)]
    if is_url(text):
        found = list(_remote_matches(text, storage_options))
    else:
        found = [Location.of(path, storage_options) for path in sorted(glob.glob(text)) if os.path.isdir(path)]
    if not found:
        raise StorageError(f"{text}: no directory matches: check the pattern, and quote it in a shell")
    return found


def _remote_matches(url: str, storage_options: Mapping[str, str] | None) -> Iterator[Location]:
    """A level of folders after the other is listed, from the first pattern on."""
    scheme, _, rest = url.partition("://")
    authority, *names = rest.rstrip("/").split("/")
    if _MAGIC.search(authority):
        raise InvalidConfig(f"{url}: the bucket cannot be a pattern")
    bases = [f"{scheme}://{authority}"]
    for name in names:
        if not _MAGIC.search(name):
            bases = [f"{base}/{name}" for base in bases]
            continue
        matches = re.compile(translate(name)).match
        bases = [
            f"{base}/{folder}"
            for base in bases
            for folder in _folders(Location.of(base, storage_options))
            if matches(folder)
        ]
    yield from (Location.of(base, storage_options) for base in bases)


def _folders(location: Location) -> list[str]:
    files, path = location.connect()
    return sorted(entry.name for entry in files.list(path) if entry.is_folder)
