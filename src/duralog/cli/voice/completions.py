"""Shell completion for the values of options, from the directory that the command line names so far.

It runs at every press of the Tab key, so it only reads names of folders, and offers nothing after an error. Topics of a
broker are not offered: a request could take seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from duralog.operations.directory_topics import topics_in

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TABLE_FORMATS = ("parquet", "delta", "iceberg")
ENGINES = ("threads", "spark")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

_PLACES = ("data", "directory", "path", "paths", "target")
"""The parameters that may hold the directory; the first one that is given counts."""


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics of the directory. Internal topics of Kafka, with two underscores, only after these are typed."""
    return [
        name
        for name in _beginning(_topics(ctx), incomplete)
        if incomplete.startswith("__") or not name.startswith("__")
    ]


def partition_numbers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The partitions of the given topic, or of all topics."""
    found = _topics(ctx)
    topic = ctx.params.get("topic")
    topics = [topic] if isinstance(topic, str) else list(topic or found)
    numbers = {number for name in topics for number in found.get(name, ())}
    return [str(number) for number in sorted(numbers) if str(number).startswith(incomplete)]


def codecs(incomplete: str) -> list[str]:
    return [name for name in CODECS if name.startswith(incomplete)]


def table_formats(incomplete: str) -> list[str]:
    return _beginning(TABLE_FORMATS, incomplete)


def engines(incomplete: str) -> list[str]:
    return _beginning(ENGINES, incomplete)


def isolation_levels(incomplete: str) -> list[str]:
    return _beginning(ISOLATION_LEVELS, incomplete)


def topic_config_settings(incomplete: str) -> list[str]:
    """`NAME=`, without a value."""
    return [f"{name}=" for name in topic_config_names(incomplete)]


def topic_config_names(incomplete: str) -> list[str]:
    from duralog.config import TOPIC_CONFIGS

    return _beginning(TOPIC_CONFIGS, incomplete)


def broker_config_settings(incomplete: str) -> list[str]:
    """`NAME=`, for configs that can be set while a broker runs."""
    from duralog.broker.configs.dynamic import CHANGEABLE_CONFIGS

    return [f"{name}=" for name in _beginning(CHANGEABLE_CONFIGS, incomplete)]


def broker_config_names(incomplete: str) -> list[str]:
    from duralog.config import BROKER_CONFIGS

    return _beginning(BROKER_CONFIGS, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _topics(ctx: typer.Context) -> Mapping[str, Sequence[int]]:
    # While the value of an option is completed, click has not parsed the arguments: they are in ctx.args.
    left = next((word for word in ctx.args if not word.startswith("-")), None)
    place = _place(ctx.params) or left
    return {} if place is None else topics_in(os.path.expanduser(place))


def _place(given: dict[str, Any]) -> str | None:
    for name in _PLACES:
        value = given.get(name)
        place = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(place, str) and place:
            return place
    return None
