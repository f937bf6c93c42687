"""The topics of a running broker, shown as those of a directory are, and what can be done to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duralog.cli.common.failures import printable, say
from duralog.cli.common.output import Output
from duralog.cli.common.tables import plural, write_table
from duralog.cli.common.unknown_names import unknown_topic
from duralog.client.target import ANSWER_SECONDS, admin_client, admin_module, edge_offsets, kafka_client, told_by_broker
from duralog.client.topic_views import write_no_topics
from duralog.errors import DuralogError

_LIST_NAMES = ("topic", "id", "partitions", "offsets", "configs")
_PARTITION_NAMES = ("partition", "start_offset", "end_offset", "leader", "replicas", "in_sync")
_CONFIG_NAMES = ("config", "value", "from")
_SOURCES = {
    1: "topic",
    2: "broker, dynamic",
    3: "cluster default",
    4: "server.properties",
    5: "default",
    6: "group",
}
_OF_TOPIC, _DEFAULT = 1, 5
_MOST_PARTITIONS = 2**31 - 1
_URL_SAFE = str.maketrans("+/", "-_")


class BrokerTopics:
    def __init__(self, address: str) -> None:
        self._address = address
        self._client = kafka_client()
        self._types = admin_module()
        self._admin = admin_client(address)

    def write_list(self, only: str | None, output: Output) -> bool:
        """Returns whether all partitions can be used."""
        with told_by_broker(self._address):
            names = self._names(only)
            described = self._described(names)
            edges = self._edges(described)
            overrides = {name: _overrides(configs) for name, configs in self._configs(names).items()}
        rows = []
        for name in names:
            places = [(name, partition.id) for partition in described[name].partitions]
            offsets = sum(edges[1][place] - edges[0][place] for place in places if place in edges[1])
            if output.as_json:
                output.object(
                    {
                        "kind": "topic",
                        "topic": name,
                        "topic_id": id_text(described[name].topic_id),
                        "partitions": len(places),
                        "offsets": offsets,
                        "configs": overrides[name],
                    }
                )
                continue
            settings = ", ".join(f"{key}={value}" for key, value in sorted(overrides[name].items()))
            rows.append(
                [
                    printable(name),
                    id_text(described[name].topic_id),
                    f"{len(places):,}",
                    f"{offsets:,}",
                    printable(settings) or "-",
                ]
            )
        if not output.as_json:
            right, cut, least = ("partitions", "offsets"), ("topic", "configs"), ("id", "configs")
            if rows:
                write_table(output, _LIST_NAMES, rows, right=right, cut=cut, least=least)
                output.heading(plural(len(rows), "topic"))
            else:
                write_no_topics(self._address, output)
        return self._tell_unusable(described)

    def write_descriptions(self, only: str | None, output: Output, *, all_configs: bool) -> bool:
        """Returns whether all partitions can be used."""
        with told_by_broker(self._address):
            names = self._names(only)
            described = self._described(names)
            edges = self._edges(described)
            configs = self._configs(names)
        if not names:
            write_no_topics(self._address, output)
        for name in names:
            shown = [entry for entry in configs[name] if all_configs or entry.source != _DEFAULT]
            if output.as_json:
                self._write_objects(output, described[name], shown, edges)
            else:
                self._write_tables(output, described[name], shown, edges)
        return self._tell_unusable(described)

    def _write_objects(
        self, output: Output, topic: Any, configs: list[Any], edges: tuple[Mapping[Any, int], Mapping[Any, int]]
    ) -> None:
        output.object(
            {
                "kind": "topic",
                "topic": topic.name,
                "topic_id": id_text(topic.topic_id),
                "partitions": [partition.id for partition in topic.partitions],
                "configs": [
                    {"name": entry.name, "value": entry.value, "source": _SOURCES.get(entry.source, "unknown")}
                    for entry in configs
                ],
            }
        )
        for partition in topic.partitions:
            output.object(
                {
                    "kind": "partition",
                    "topic": topic.name,
                    "partition": partition.id,
                    "start_offset": edges[0].get((topic.name, partition.id)),
                    "end_offset": edges[1].get((topic.name, partition.id)),
                    "leader": partition.leader.id if _is_led(partition) else None,
                    "replicas": [node.id for node in partition.replicas],
                    "in_sync": [node.id for node in partition.isr],
                }
            )

    def _write_tables(
        self, output: Output, topic: Any, configs: list[Any], edges: tuple[Mapping[Any, int], Mapping[Any, int]]
    ) -> None:
        count = plural(len(topic.partitions), "partition")
        output.heading(f"{printable(topic.name)}: {count}, id {id_text(topic.topic_id)}")
        rows = [
            [
                str(partition.id),
                str(edges[0].get((topic.name, partition.id), "-")),
                str(edges[1].get((topic.name, partition.id), "-")),
                str(partition.leader.id) if _is_led(partition) else "-",
                ",".join(str(node.id) for node in partition.replicas),
                ",".join(str(node.id) for node in partition.isr),
            ]
            for partition in topic.partitions
        ]
        write_table(output, _PARTITION_NAMES, rows, right=_PARTITION_NAMES[:3], cut=("replicas", "in_sync"))
        if configs:
            cells = [
                [entry.name, printable(entry.value or "") or '""', _SOURCES.get(entry.source, "unknown")]
                for entry in configs
            ]
            write_table(output, _CONFIG_NAMES, cells, cut=("value",))
        else:
            output.columns("(no configs but Kafka's defaults; --all lists them)")

    # Changes

    def create(self, name: str, partitions: int | None, configs: Mapping[str, object]) -> tuple[str, int]:
        """Returns the topic's id and how many partitions it has."""
        texts = {key: str(value) for key, value in configs.items()}
        count = -1 if partitions is None else _checked_count(partitions)
        with told_by_broker(self._address):
            topic = self._types.NewTopic(name, num_partitions=count, replication_factor=-1, config=texts)
            self._admin.create_topics([topic], request_timeout=ANSWER_SECONDS)[name].result()
            (described,) = self._described([name]).values()
        return id_text(described.topic_id), len(described.partitions)

    def alter(self, name: str, changes: Mapping[str, object], partitions: int | None) -> None:
        operation = self._types.AlterConfigOpType
        with told_by_broker(self._address):
            if changes:
                entries = [
                    self._types.ConfigEntry(
                        key,
                        None if value is None else str(value),
                        incremental_operation=operation.DELETE if value is None else operation.SET,
                    )
                    for key, value in changes.items()
                ]
                resource = self._types.ConfigResource(self._types.ResourceType.TOPIC, name, incremental_configs=entries)
                self._admin.incremental_alter_configs([resource], request_timeout=ANSWER_SECONDS)[resource].result()
            if partitions is not None:
                added = self._types.NewPartitions(name, _checked_count(partitions))
                self._admin.create_partitions([added], request_timeout=ANSWER_SECONDS)[name].result()

    def delete(self, name: str) -> None:
        with told_by_broker(self._address):
            self._admin.delete_topics([name], request_timeout=ANSWER_SECONDS)[name].result()

    def count(self, name: str) -> int:
        """How many partitions a topic has."""
        with told_by_broker(self._address):
            self._names(name)
            (described,) = self._described([name]).values()
        return len(described.partitions)

    # What the broker says

    def _names(self, only: str | None) -> list[str]:
        found = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        if only is not None and only not in found:
            raise unknown_topic(self._address, only, found)
        return sorted(found) if only is None else [only]

    def _described(self, names: list[str]) -> dict[str, Any]:
        if not names:
            return {}
        wanted = self._client.TopicCollection(names)
        answers = self._admin.describe_topics(wanted, request_timeout=ANSWER_SECONDS)
        return {name: answer.result() for name, answer in answers.items()}

    def _edges(self, described: Mapping[str, Any]) -> tuple[Mapping[Any, int], Mapping[Any, int]]:
        """Where partitions begin, and where they end, of those that somebody could tell of."""
        places = [
            self._client.TopicPartition(name, partition.id)
            for name, topic in described.items()
            for partition in topic.partitions
            if _is_led(partition)
        ]
        if not places:
            return {}, {}
        return edge_offsets(self._admin, places, latest=False), edge_offsets(self._admin, places, latest=True)

    def _tell_unusable(self, described: Mapping[str, Any]) -> bool:
        unusable = [
            f"{printable(name)}-{partition.id}"
            for name, topic in described.items()
            for partition in topic.partitions
            if not _is_led(partition)
        ]
        for place in unusable:
            say(f"error: {place}: it has no leader, so nobody can use it: the log of {self._address} tells why")
        return not unusable

    def _configs(self, names: list[str]) -> dict[str, list[Any]]:
        resources = {name: self._types.ConfigResource(self._types.ResourceType.TOPIC, name) for name in names}
        if not resources:
            return {}
        answers = self._admin.describe_configs([*resources.values()], request_timeout=ANSWER_SECONDS)
        return {
            name: sorted(answers[resource].result().values(), key=lambda entry: str(entry.name))
            for name, resource in resources.items()
        }


def _checked_count(partitions: int) -> int:
    """How many a broker can be asked for; whether it makes them is its own to say."""
    if partitions > _MOST_PARTITIONS:
        raise DuralogError(f"{partitions} is not a number of partitions: it must be from 1 to {_MOST_PARTITIONS}")
    return partitions


def _is_led(partition: Any) -> bool:
    return partition.leader is not None and partition.leader.id >= 0


def _overrides(configs: list[Any]) -> dict[str, str]:
    return {entry.name: entry.value for entry in configs if entry.source == _OF_TOPIC}


def id_text(topic_id: Any) -> str:
    """As Kafka and its files write it: the client has the other alphabet of base64."""
    return str(topic_id).translate(_URL_SAFE)
