"""What duralog itself says of a directory, by its own API and commands: what the pages must show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import duralog
from duralog.command_line import app


@dataclass(frozen=True)
class PartitionTold:
    start_offset: int
    end_offset: int
    size_bytes: int
    base_offsets: tuple[int, ...]


def partitions(directory: Path) -> dict[tuple[str, int], PartitionTold]:
    with duralog.open(directory, read_only=True) as store:
        return {
            (topic, number): _partition(store.partition(topic, number))
            for topic in store.topics()
            for number in store.partitions(topic)
        }


def _partition(log: duralog.PartitionLog) -> PartitionTold:
    return PartitionTold(
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        size_bytes=sum(segment.size_bytes for segment in log.segments),
        base_offsets=tuple(segment.base_offset for segment in log.segments),
    )


def command(*arguments: str, exit_code: int = 0) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    return result.stdout


def objects(*arguments: str, exit_code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command(*arguments, "--json", exit_code=exit_code).splitlines()]
