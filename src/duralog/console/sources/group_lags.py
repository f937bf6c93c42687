"""Summaries of consumer groups, and the lag of each over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duralog.client.groups import GroupView
from duralog.console.facts.overview import GroupDetails, GroupFacts, LagSample, PartitionRow
from duralog.console.sources.rates import History

RowsOf = Callable[[str], Sequence[PartitionRow]]
"""The partitions of a topic, none if there is no such topic."""

_MOST_LAGS = 300
_MOST_HISTORIES = 2_000


class LagHistories:
    """The lag of each group over time, for a bounded number of groups."""

    def __init__(self) -> None:
        self._of: dict[str, History[LagSample]] = {}

    def add(self, at_ms: int, groups: list[GroupView]) -> None:
        self._of = {group.group: self._of.get(group.group) or History(_MOST_LAGS) for group in groups[:_MOST_HISTORIES]}
        for group in groups[:_MOST_HISTORIES]:
            if any(offset.lag is not None for offset in group.offsets):
                self._of[group.group].add(LagSample(at_ms=at_ms, lag=group.lag))

    def details(self, view: GroupView, rows_of: RowsOf) -> GroupDetails:
        history = self._of.get(view.group)
        return GroupDetails(
            facts=group_facts(view, rows_of),
            view=view,
            history=() if history is None else history.all(),
            without_commit=tuple(_without_commit(view, rows_of)),
        )


def group_facts(view: GroupView, rows_of: RowsOf) -> GroupFacts:
    is_known = any(offset.lag is not None for offset in view.offsets)
    return GroupFacts(
        name=view.group,
        state=view.state,
        protocol=view.kind,
        members=len(view.members),
        lag=view.lag if is_known else None,
        topics=tuple(sorted(_topics(view))),
        without_commit=sum(bool(row.records) for row in _without_commit(view, rows_of)),
    )


def _topics(view: GroupView) -> set[str]:
    topics = {offset.topic for offset in view.offsets}
    return topics | {topic for member in view.members for topic, _ in member.partitions}


def _without_commit(view: GroupView, rows_of: RowsOf) -> list[PartitionRow]:
    committed = {(offset.topic, offset.partition) for offset in view.offsets if offset.committed is not None}
    return [row for topic in sorted(_topics(view)) for row in rows_of(topic) if (topic, row.partition) not in committed]
