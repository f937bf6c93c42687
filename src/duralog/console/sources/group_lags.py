"""Consumer groups in short, and the lag of each over time."""

from __future__ import annotations

from duralog.client.groups import GroupView
from duralog.console.facts.overview import GroupDetails, GroupFacts, LagSample
from duralog.console.sources.rates import History

_MOST_LAGS = 300
_MOST_HISTORIES = 2_000


class LagHistories:
    """The lag of each group over time, of as many groups as can be kept."""

    def __init__(self) -> None:
        self._of: dict[str, History[LagSample]] = {}

    def add(self, at_ms: int, groups: list[GroupView]) -> None:
        self._of = {group.group: self._of.get(group.group) or History(_MOST_LAGS) for group in groups[:_MOST_HISTORIES]}
        for group in groups[:_MOST_HISTORIES]:
            if any(offset.lag is not None for offset in group.offsets):
                self._of[group.group].add(LagSample(at_ms=at_ms, lag=group.lag))

    def details(self, view: GroupView) -> GroupDetails:
        history = self._of.get(view.group)
        return GroupDetails(facts=group_facts(view), view=view, history=() if history is None else history.all())


def group_facts(view: GroupView) -> GroupFacts:
    topics = {offset.topic for offset in view.offsets}
    topics |= {topic for member in view.members for topic, _ in member.partitions}
    is_known = any(offset.lag is not None for offset in view.offsets)
    return GroupFacts(
        name=view.group,
        state=view.state,
        protocol=view.kind,
        members=len(view.members),
        lag=view.lag if is_known else None,
        topics=tuple(sorted(topics)),
    )
