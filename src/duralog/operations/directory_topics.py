"""The topics of a directory by the names of its folders, without opening it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from duralog.format.filenames import FolderState, has_partition_files, parse_partition_folder
from duralog.storage.disk.found_files import names_in


def topics_in(directory: str) -> Mapping[str, Sequence[int]]:
    """The partitions of each topic that has folders there. Empty if the directory cannot be read."""
    topics: dict[str, list[int]] = {}
    has_files: set[str] = set()
    for name in names_in(directory):
        folder = parse_partition_folder(name)
        if folder is not None and folder.state is FolderState.LIVE:
            topics.setdefault(folder.topic, []).append(folder.partition)
            if folder.topic not in has_files and has_partition_files(names_in(os.path.join(directory, name))):
                has_files.add(folder.topic)
    return {topic: partitions for topic, partitions in topics.items() if topic in has_files}
