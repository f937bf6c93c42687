"""Checks the names of a command line: an error about a topic or partition that does not exist lists those that do."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from duralog.client.unknown_names import unknown_partition, unknown_topic
from duralog.errors import UnknownTopic
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT, parse_partition_folder
from duralog.operations.addresses import check_directory, directories_in
from duralog.operations.directory_topics import topics_in


@contextmanager
def names_checked(
    path: str,
    topic: str | Collection[str] | None,
    partition: int | None = None,
    *,
    may_be_a_file: bool = False,
    may_be_a_cluster: bool = False,
    at_once: bool = False,
) -> Iterator[None]:
    """Work on a place, which must exist. An `UnknownTopic` of a directory is raised with the names that it has.

    A cluster is a pattern or a manifest: its reader reports what is missing. With `at_once`, the names are looked up
    before the work: starting Spark takes seconds.
    """
    places = directories_in(path)
    if not may_be_a_file and not (may_be_a_cluster and _is_of_cluster(path)):
        for place in places:
            check_directory(place)
    directories = [_directory(place) for place in places]
    wanted = [] if topic is None else [topic] if isinstance(topic, str) else list(topic)
    # Other places list their topics in the error themselves: brokers, object stores, clusters.
    is_known = os.path.isdir(directories[0])
    if at_once and is_known:
        _check_names(path, wanted, partition, _together(map(_with_lost, directories)))
    try:
        yield
    except UnknownTopic:
        if is_known:
            _check_names(path, wanted, partition, _together(map(topics_in, directories)))
        raise


def _check_names(path: str, topics: Sequence[str], partition: int | None, found: Mapping[str, set[int]]) -> None:
    for name in topics:
        if name not in found:
            raise unknown_topic(path, name, found) from None
    numbers = {number for name in topics or found for number in found[name]}
    if partition is not None and numbers and partition not in numbers:
        raise unknown_partition(path, topics[0] if len(topics) == 1 else None, partition, sorted(numbers)) from None


def _together(several: Iterable[Mapping[str, Iterable[int]]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for topics in several:
        for name, numbers in topics.items():
            found.setdefault(name, set()).update(numbers)
    return found


def _with_lost(directory: str) -> Mapping[str, Iterable[int]]:
    """With those whose folders are lost: that is for the work to report."""
    from duralog.storage.disk.file_system import LocalFileSystem
    from duralog.storage.disk.log_directory import LogDirectory

    offsets = LogDirectory(LocalFileSystem(), directory).read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
    return _together([topics_in(directory), *({topic: [number]} for topic, number in offsets)])


def _is_of_cluster(path: str) -> bool:
    from duralog.scanning.cluster.directories import is_of_cluster

    return is_of_cluster(path)


def _directory(path: str) -> str:
    """The log directory of a path, which may also be a partition's folder in it."""
    normal = os.path.abspath(path)
    return os.path.dirname(normal) if parse_partition_folder(os.path.basename(normal)) is not None else normal
