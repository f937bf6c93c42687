"""What a write needs to know of the topics that it writes to, before its tasks start: partitions and configs.

The driver finds it once and sends it to the tasks with the writer. Topics may change until the commit; the commit
checks again (`duralog.spark.sink.commit`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.errors import InvalidRecord
from duralog.format.filenames import META_PROPERTIES, parse_partition_folder, parse_segment_file, topic_name_fault
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.spark.option_text import refused
from duralog.spark.sink.write_options import MOST_PARTITIONS, WriteOptions
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True)
class TopicTarget:
    partitions: int
    """Of the whole topic. Some may be in another directory; the commit refuses what is for them."""
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class WriteTargets:
    known: Mapping[str, TopicTarget]
    new: TopicTarget
    """Of a topic that the write creates. A restored one has as many partitions as its rows need."""

    def of(self, topic: str) -> TopicTarget:
        """Raises `InvalidRecord` for a topic that cannot be written to."""
        found = self.known.get(topic)
        if found is not None and topic not in INTERNAL_TOPICS:
            return found
        fault = f"{topic} is an internal topic of Kafka" if topic in INTERNAL_TOPICS else topic_name_fault(topic)
        if fault is not None:
            raise InvalidRecord(fault)
        return self.new


def _refuse_a_log(files: FileSystem, path: str) -> None:
    """Refuse the folder of one log as the directory of all: topics that are created in it would never be found."""
    if parse_partition_folder(posixpath.basename(path)) is None:
        return
    if any(parse_segment_file(name) is not None for name in files.list_names(path)):
        raise refused("path", path, "the directory of the logs: this is the folder of one partition in it")


def store_targets(options: WriteOptions, file_system: FileSystem | None = None) -> WriteTargets:
    """The topics of the directory, if there is one already; only that of the option, if it names one."""
    files = file_system or LocalFileSystem()
    broker = options.broker_config()
    count = options.partitions or (MOST_PARTITIONS if options.preserve_offsets else broker.num_partitions)
    new = TopicTarget(count, options.new_topic_config(broker.topic_defaults()))
    if not files.exists(options.path):
        return WriteTargets({}, new)
    _refuse_a_log(files, options.path)
    # Most directories have this file, and their folders need not be listed to know what they are.
    if not files.exists(f"{options.path}/{META_PROPERTIES}") and not LogDirectory(files, options.path).has_logs():
        return WriteTargets({}, new)
    with Store(options.path, config=broker, read_only=True, file_system=files) as store:
        known = {
            topic: TopicTarget(store.partition_count(topic), store.topic_config(topic))
            for topic in store.topics()
            if options.topic in (None, topic)
        }
        defaults = store.config.topic_defaults()
    return WriteTargets(known, TopicTarget(new.partitions, options.new_topic_config(defaults)))
