"""Checks the names of a command line: an error about a topic or partition that does not exist lists those that do."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from duralog.cli.common.addresses import check_directory
from duralog.client.unknown_names import unknown_partition, unknown_topic
from duralog.errors import UnknownTopic
from duralog.format.filenames import FolderState, has_partition_files, parse_partition_folder


@contextmanager
def names_checked(
    path: str, topic: str | Collection[str] | None, partition: int | None = None, *, may_be_a_file: bool = False
) -> Iterator[None]:
    """Work on a place, which must exist. An `UnknownTopic` of a directory is raised with the names that it has."""
    if not may_be_a_file:
        check_directory(path)
    try:
        yield
    except UnknownTopic:
        directory = _directory(path)
        if not os.path.isdir(directory):
            raise  # The error of a broker or an object store already lists its topics.
        wanted = [] if topic is None else [topic] if isinstance(topic, str) else list(topic)
        found = topics_in(directory)
        for name in wanted:
            if name not in found:
                raise unknown_topic(path, name, found) from None
        numbers = {number for name in wanted or found for number in found[name]}
        if partition is not None and numbers and partition not in numbers:
            raise unknown_partition(path, wanted[0] if len(wanted) == 1 else None, partition, sorted(numbers)) from None
        raise


def topics_in(directory: str) -> Mapping[str, Sequence[int]]:
    """The partitions of each topic that has folders there. Empty if the directory cannot be read."""
    topics: dict[str, list[int]] = {}
    has_files: set[str] = set()
    for name in _names_in(directory):
        folder = parse_partition_folder(name)
        if folder is not None and folder.state is FolderState.LIVE:
            topics.setdefault(folder.topic, []).append(folder.partition)
            if folder.topic not in has_files and has_partition_files(_names_in(os.path.join(directory, name))):
                has_files.add(folder.topic)
    return {topic: partitions for topic, partitions in topics.items() if topic in has_files}


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _directory(path: str) -> str:
    """The log directory of a path, which may also be a partition's folder in it."""
    normal = os.path.abspath(path)
    return os.path.dirname(normal) if parse_partition_folder(os.path.basename(normal)) is not None else normal
