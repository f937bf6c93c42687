"""Changes of consumer groups: reset their offsets, delete them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from duralog.broker.security.web_users import Role
from duralog.config.plurals import plural
from duralog.console.changes.change import MOST_ROWS, Preview, WithoutInput
from duralog.operations.groups.reset_offsets import ResetOffset, ResetRequest, ResetTo, reset_offsets
from duralog.operations.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetGroup(WithoutInput):
    group: str
    topics: Mapping[str, Collection[int] | None] | None
    """As in `ResetRequest`; None for all topics that the group has committed offsets of."""
    to: ResetTo
    option: tuple[str, ...]
    """The scenario as the command has it: `--to-earliest`, or `--shift-by` and a number."""
    evicts: bool = False
    role: Role = Role.CHANGE

    def arguments(self, where: Sequence[str]) -> list[str]:
        chosen = ["--all-topics"]
        if self.topics is not None:
            chosen = [word for topic, numbers in self.topics.items() for word in ("--topic", _named(topic, numbers))]
        evict = ["--evict"] if self.evicts else []
        return ["group", "reset", *where, "--group", self.group, *chosen, *self.option, *evict, "--execute"]

    def preview(self, target: Target) -> Preview:
        offsets = self._reset(target, execute=False)
        more = len(offsets) - MOST_ROWS
        return Preview(
            sentence=f"{plural(_moved(offsets), 'partition')} of {len(offsets):,} would move."
            if offsets
            else "There is nothing to reset: the group has committed no offsets of these topics.",
            columns=("Partition", "From", "To", "Change"),
            rows=tuple(_row(offset) for offset in offsets[:MOST_ROWS]),
            notes=(f"{plural(more, 'more partition')} not shown.",) if more > 0 else (),
            has_effect=_moved(offsets) > 0,
        )

    def carry_out(self, target: Target) -> str:
        offsets = self._reset(target, execute=True)
        some = "" if _moved(offsets) == len(offsets) else f"{_moved(offsets):,} of "
        return f"Reset {some}{plural(len(offsets), 'partition')} of group {self.group}."

    def _reset(self, target: Target, *, execute: bool) -> Sequence[ResetOffset]:
        request = ResetRequest(groups=[self.group], topics=self.topics, to=self.to, execute=execute)
        (done,) = reset_offsets(target.groups(evicts=self.evicts), request)
        return done.offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(WithoutInput):
    group: str
    evicts: bool = False
    role: Role = Role.CHANGE

    def arguments(self, where: Sequence[str]) -> list[str]:
        return ["group", "delete", *where, "--group", self.group, *(["--evict"] if self.evicts else [])]

    def preview(self, target: Target) -> Preview:
        count = target.groups(evicts=self.evicts).check(self.group)
        return Preview(sentence=f"Group {self.group} is deleted with {plural(count, 'committed offset')}.")

    def carry_out(self, target: Target) -> str:
        target.groups(evicts=self.evicts).delete(self.group)
        return f"Deleted group {self.group}."


def _moved(offsets: Sequence[ResetOffset]) -> int:
    return sum(offset.before != offset.after for offset in offsets)


def _named(topic: str, numbers: Collection[int] | None) -> str:
    return topic if numbers is None else f"{topic}:{','.join(map(str, sorted(numbers)))}"


def _row(offset: ResetOffset) -> tuple[str, str, str, str]:
    if offset.before is None:
        change = "no committed offset before"
    else:
        change = f"{offset.after - offset.before:+,}" if offset.after != offset.before else "stays"
    if offset.wanted is not None:
        change += f"; {offset.wanted:,} is not in the partition, this is the nearest"
    before = "–" if offset.before is None else f"{offset.before:,}"
    return f"{offset.topic}-{offset.partition}", before, f"{offset.after:,}", change
