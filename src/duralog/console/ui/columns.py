"""Columns that several tables have: a number, a partition that leads to its page, how long ago something was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from duralog.console.ui.data_table import Column
from duralog.console.ui.words import age_text, exact_time_text, number_text, partition_path

Row = TypeVar("Row")


def number_column(
    name: str, label: str, value: Callable[[Row], int | None], *, hint: str = "", wide: bool = False
) -> Column[Row]:
    return Column(
        name=name,
        label=label,
        cell=lambda row: number_text(value(row)),
        sort=value,
        numeric=True,
        hint=hint,
        wide=wide,
    )


def partition_column(
    name: str, place: Callable[[Row], tuple[str, int]], path: Callable[[str, int], str] = partition_path
) -> Column[Row]:
    return Column(
        name=name,
        label="Partition",
        cell=lambda row: {"text": "{}-{}".format(*place(row)), "href": path(*place(row))},
        sort=place,
    )


def age_column(name: str, label: str, time_ms: Callable[[Row], int | None], *, wide: bool = False) -> Column[Row]:
    """With the exact time for a pointer that rests on it."""
    return Column(
        name=name,
        label=label,
        cell=lambda row: {"text": age_text(time_ms(row)), "title": exact_time_text(time_ms(row))},
        sort=time_ms,
        numeric=True,
        wide=wide,
    )
