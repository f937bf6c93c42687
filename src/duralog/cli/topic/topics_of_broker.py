"""Tables and JSON of the topics of a running broker."""

from __future__ import annotations

from collections.abc import Sequence

from duralog.cli.topic.views import TopicSummary, write_configs, write_no_topics, write_summaries
from duralog.cli.voice.failures import say
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural, write_table
from duralog.client.topics import TopicView
from duralog.config.entries import (
    ALL_BROKERS_SOURCE,
    DEFAULT_SOURCE,
    STATIC_SOURCE,
    THIS_BROKER_SOURCE,
    TOPIC_SOURCE,
    Value,
)
from duralog.config.error_text import printable

_PARTITION_NAMES = ("partition", "start_offset", "end_offset", "leader", "replicas", "in_sync")
_SOURCES = {
    TOPIC_SOURCE: "topic",
    THIS_BROKER_SOURCE: "broker, dynamic",
    ALL_BROKERS_SOURCE: "cluster default",
    STATIC_SOURCE: "server.properties",
    DEFAULT_SOURCE: "default",
}


def write_list(topics: Sequence[TopicView], address: str, output: Output) -> bool:
    """Returns whether all partitions have a leader."""
    summaries = [
        TopicSummary(
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=len(topic.partitions),
            offsets=sum((each.end_offset or 0) - (each.start_offset or 0) for each in topic.partitions),
            configs={config.name: config.text for config in topic.configs if config.source == TOPIC_SOURCE},
        )
        for topic in topics
    ]
    write_summaries(summaries, address, output)
    return _report_without_leader(topics, address)


def write_descriptions(
    topics: Sequence[TopicView],
    address: str,
    output: Output,
    *,
    all_configs: bool = False,
    with_partitions: bool = True,
) -> bool:
    """Returns whether all partitions have a leader. JSON always has the partitions."""
    if not topics:
        write_no_topics(address, output)
    for topic in topics:
        configs = [config for config in topic.configs if all_configs or config.source != DEFAULT_SOURCE]
        if output.as_json:
            _write_objects(topic, configs, output)
        else:
            _write_tables(topic, configs, output, with_partitions=with_partitions)
    return _report_without_leader(topics, address)


def _write_objects(topic: TopicView, configs: Sequence[Value], output: Output) -> None:
    output.object(
        {
            "kind": "topic",
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [partition.number for partition in topic.partitions],
            "configs": [
                {"name": config.name, "value": config.text, "source": _SOURCES.get(config.source, "unknown")}
                for config in configs
            ],
        }
    )
    for partition in topic.partitions:
        output.object(
            {
                "kind": "partition",
                "topic": topic.name,
                "partition": partition.number,
                "start_offset": partition.start_offset,
                "end_offset": partition.end_offset,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "in_sync": partition.in_sync,
            }
        )


def _write_tables(topic: TopicView, configs: Sequence[Value], output: Output, *, with_partitions: bool) -> None:
    count = plural(len(topic.partitions), "partition")
    output.heading(f"{printable(topic.name)}: {count}, id {topic.topic_id}")
    rows = [
        [
            str(partition.number),
            *("-" if value is None else str(value) for value in (partition.start_offset, partition.end_offset)),
            "-" if partition.leader is None else str(partition.leader),
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.in_sync)),
        ]
        for partition in topic.partitions
    ]
    if with_partitions:
        write_table(output, _PARTITION_NAMES, rows, right=_PARTITION_NAMES[:3], cut=("replicas", "in_sync"))
    shown = [(config.name, config.text or "", _SOURCES.get(config.source, "unknown")) for config in configs]
    write_configs(shown, output)


def _report_without_leader(topics: Sequence[TopicView], address: str) -> bool:
    failed = [
        f"{printable(topic.name)}-{partition.number}"
        for topic in topics
        for partition in topic.partitions
        if partition.leader is None
    ]
    for place in failed:
        say(f"error: {place}: it has no leader, so it cannot be used: see the log of {address} for the reason")
    return not failed
