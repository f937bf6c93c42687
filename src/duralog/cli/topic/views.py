"""The tables that topics of a directory and of a broker share: the list of topics, and the configs of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural, write_table
from duralog.config.error_text import printable

_CONFIG_NAMES = ("config", "value", "from")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    topic: str
    topic_id: str | None
    partitions: int
    offsets: int
    configs: Mapping[str, str | None]
    """Those that the topic sets itself. None for a value that the broker does not show."""
    size_bytes: int | None = None
    """None for a topic of a broker."""


def write_summaries(summaries: Sequence[TopicSummary], place: str, output: Output) -> None:
    if output.as_json:
        for summary in summaries:
            size = {} if summary.size_bytes is None else {"bytes": summary.size_bytes}
            output.object(
                {
                    "kind": "topic",
                    "topic": summary.topic,
                    "topic_id": summary.topic_id,
                    "partitions": summary.partitions,
                    "offsets": summary.offsets,
                    **size,
                    "configs": summary.configs,
                }
            )
        return
    if not summaries:
        write_no_topics(place, output)
        return
    sizes = () if summaries[0].size_bytes is None else ("bytes",)
    names = ("topic", "id", "partitions", "offsets", *sizes, "configs")
    right = ("partitions", "offsets", *sizes)
    rows = [_cells(summary) for summary in summaries]
    write_table(output, names, rows, right=right, cut=("topic", "configs"), least=("id", "configs"))
    output.heading(plural(len(rows), "topic"))


def _cells(summary: TopicSummary) -> list[str]:
    settings = ", ".join(f"{key}={value or ''}" for key, value in sorted(summary.configs.items()))
    return [
        printable(summary.topic),
        summary.topic_id or "-",
        f"{summary.partitions:,}",
        f"{summary.offsets:,}",
        *([] if summary.size_bytes is None else [f"{summary.size_bytes:,}"]),
        printable(settings) or "-",
    ]


def write_no_topics(place: str, output: Output) -> None:
    output.heading(f"no topics yet. To create one: duralog topic create {printable(place)} --topic NAME")


def write_configs(configs: Sequence[tuple[str, str, str]], output: Output) -> None:
    """The name, value and source of each."""
    if configs:
        rows = [[name, printable(value) or '""', source] for name, value, source in configs]
        write_table(output, _CONFIG_NAMES, rows, cut=("value",))
    else:
        output.columns("(no configs but Kafka's defaults; --all lists them)")
