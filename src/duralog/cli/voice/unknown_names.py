"""Checks the names of a command line: an error about a topic or partition that does not exist lists those that do."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from duralog.cli.voice.addresses import check_directory, directories_in
from duralog.client.unknown_names import unknown_partition, unknown_topic
from duralog.errors import UnknownTopic
from duralog.format.filenames import parse_partition_folder
from duralog.operations.directory_topics import topics_in


@contextmanager
def names_checked(
    path: str,
    topic: str | Collection[str] | None,
    partition: int | None = None,
    *,
    may_be_a_file: bool = False,
    may_be_a_cluster: bool = False,
) -> Iterator[None]:
    """Work on a place, which must exist. An `UnknownTopic` of a directory is raised with the names that it has.

    A cluster is a pattern or a manifest: its reader reports what is missing.
    """
    places = directories_in(path)
    if not may_be_a_file and not (may_be_a_cluster and _is_of_cluster(path)):
        for place in places:
            check_directory(place)
    try:
        yield
    except UnknownTopic:
        directories = [_directory(place) for place in places]
        if not os.path.isdir(directories[0]):
            raise  # The error of a broker or an object store already lists its topics.
        wanted = [] if topic is None else [topic] if isinstance(topic, str) else list(topic)
        found: dict[str, list[int]] = {}
        for directory in directories:
            for name, here in topics_in(directory).items():
                found[name] = sorted({*found.get(name, ()), *here})
        for name in wanted:
            if name not in found:
                raise unknown_topic(path, name, found) from None
        numbers = {number for name in wanted or found for number in found[name]}
        if partition is not None and numbers and partition not in numbers:
            raise unknown_partition(path, wanted[0] if len(wanted) == 1 else None, partition, sorted(numbers)) from None
        raise


def _is_of_cluster(path: str) -> bool:
    from duralog.scanning.cluster.directories import is_of_cluster

    return is_of_cluster(path)


def _directory(path: str) -> str:
    """The log directory of a path, which may also be a partition's folder in it."""
    normal = os.path.abspath(path)
    return os.path.dirname(normal) if parse_partition_folder(os.path.basename(normal)) is not None else normal
