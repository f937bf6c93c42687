"""Topics and partitions that a command line names and that do not exist: what is there instead, and what to do.

A name with a slip of the finger in it gets the nearest one that exists.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from duralog.cli.common.addresses import check_directory
from duralog.errors import UnknownTopic
from duralog.format.filenames import FolderState, has_partition_files, parse_partition_folder

_MOST_LISTED = 10
_NEAR = 0.75
"""How alike names must be, 0 to 1, for one to be a slip of the other: `orders` and `codecs` are not."""


def unknown_topic(where: str, topic: str, known: Collection[str]) -> UnknownTopic:
    """`there is no topic ordres in data: did you mean orders?`"""
    return UnknownTopic(f"there is no topic {topic} in {where}: {_instead(where, topic, known)}")


def unknown_partition(where: str, topic: str | None, partition: int, known: Sequence[int]) -> UnknownTopic:
    """`there is no partition 7 of orders in data: it has 0 to 3`"""
    whose = f"of {topic}" if topic is not None else "of any topic"
    numbers = sorted(known)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        there = f"{numbers[0]} to {numbers[-1]}"
    else:
        there = _listed([str(number) for number in numbers])
    return UnknownTopic(f"there is no partition {partition} {whose} in {where}: there {_is_or_are(numbers)} {there}")


@contextmanager
def names_checked(
    path: str, topic: str | Collection[str] | None, partition: int | None = None, *, may_be_a_file: bool = False
) -> Iterator[None]:
    """Work on a place, which must be there. If it ends for want of a topic or a partition, tell which there are."""
    if not may_be_a_file:
        check_directory(path)
    try:
        yield
    except UnknownTopic:
        directory = _directory(path)
        if not os.path.isdir(directory):
            raise  # A broker's address, or an object store's: whoever asked there has told what there is.
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
    """The topics whose folders are there, and their partitions. Nothing where it cannot be read."""
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


def _instead(where: str, topic: str, known: Collection[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(topic.lower(), list(by_lower), n=1, cutoff=_NEAR)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    own = sorted(name for name in known if not name.startswith("__"))
    if not own:
        return f"it has no topics. To make one: duralog topic create {where} --topic {topic}"
    if len(own) > _MOST_LISTED:
        return f"duralog topic list {where} tells which {len(own):,} there are"
    return f"there {_is_or_are(own)} {_listed(own)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_LISTED])
    return f"{shown}, ..." if len(names) > _MOST_LISTED else shown


def _is_or_are(things: Collection[object]) -> str:
    return "is only" if len(things) == 1 else "are"


def _directory(path: str) -> str:
    """The log directory that a path means, which may also be a partition's folder in it."""
    normal = os.path.abspath(path)
    return os.path.dirname(normal) if parse_partition_folder(os.path.basename(normal)) is not None else normal
