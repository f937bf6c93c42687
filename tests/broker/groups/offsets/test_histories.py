"""Any history of commits, transactions, deletions and expiry: a broker that is killed afterwards knows the same.

The truth is a plain model of what was answered. The broker is compared with it, and so is what a kill would leave.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.broker.group_desk import DELETE_GROUPS, OFFSET_DELETE, GroupDesk

GROUPS = ["a", "b"]
PARTITIONS = [("t", 0), ("u", 0)]
PRODUCERS = [50, 60]
RETENTION_MS = 7 * 24 * 3600 * 1000

groups = st.sampled_from(GROUPS)
partitions = st.sampled_from(PARTITIONS)
producers = st.sampled_from(PRODUCERS)
steps = st.one_of(
    st.tuples(st.just("commit"), groups, st.sets(partitions, min_size=1)),
    st.tuples(st.just("commit"), groups, st.sets(partitions, min_size=1)),
    st.tuples(st.just("commit in transaction"), groups, st.sets(partitions, min_size=1), producers),
    st.tuples(st.just("end transaction"), producers, st.booleans()),
    st.tuples(st.just("delete offset"), groups, partitions),
    st.tuples(st.just("delete group"), groups),
    st.tuples(st.just("let all expire")),
    st.tuples(st.just("restart")),
)

Key = tuple[str, tuple[str, int]]


class Model:
    """What is committed, and what is pending. Numbers count up, so that the later commit has the larger one."""

    def __init__(self) -> None:
        self.committed: dict[Key, int] = {}
        self.pending: dict[int, dict[Key, int]] = {producer: {} for producer in PRODUCERS}
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    def of(self, group: str) -> dict[tuple[str, int], int]:
        return {partition: offset for (name, partition), offset in self.committed.items() if name == group}

    def is_pending(self, key: Key) -> bool:
        return any(key in pending for pending in self.pending.values())

    def forget(self, keys: list[Key]) -> None:
        for key in keys:
            self.committed.pop(key, None)
            for pending in self.pending.values():
                pending.pop(key, None)

    def stable(self, group: str) -> dict[tuple[str, int], int]:
        return {
            partition: -88 if self.is_pending((group, partition)) else offset
            for partition, offset in self.of(group).items()
        }


def take(desk: GroupDesk, model: Model, step: tuple[object, ...]) -> None:
    match step:
        case ("commit", str(group), set(chosen)):
            number = model.next()
            desk.commit(group, dict.fromkeys(sorted(chosen), number))
            model.committed |= {(group, partition): number for partition in chosen}
        case ("commit in transaction", str(group), set(chosen), int(producer)):
            number = model.next()
            desk.commit_in_transaction(group, dict.fromkeys(sorted(chosen), number), producer)
            model.pending[producer] |= {(group, partition): number for partition in chosen}
        case ("end transaction", int(producer), bool(commit)):
            written_to = {desk.groups.log.partition_for(group): group for group, _ in model.pending[producer]}
            for group in written_to.values():
                desk.end_transaction(group, producer, commit=commit)
            for key, number in model.pending[producer].items():
                if commit and model.committed.get(key, 0) < number:
                    model.committed[key] = number
            model.pending[producer] = {}
        case ("delete offset", str(group), (str(topic), int(partition))):
            asked = [{"name": topic, "partitions": [{"partition_index": partition}]}]
            desk.ask(OFFSET_DELETE, 0, group_id=group, topics=asked)
            model.forget([(group, (topic, partition))])
        case ("delete group", str(group)):
            desk.ask(DELETE_GROUPS, 2, groups_names=[group])
            model.forget([(group, partition) for partition in PARTITIONS])
        case ("let all expire",):
            desk.now_ms += RETENTION_MS
            desk.pass_time(0)
            model.forget([key for key in model.committed if not model.is_pending(key)])


def check(desk: GroupDesk, model: Model) -> None:
    for group in GROUPS:
        assert desk.committed(group) == model.of(group)
        assert desk.committed(group, stable=True) == model.stable(group)
    assert len(desk.groups.offsets) == len(model.committed)


@contextmanager
def killed(desk: GroupDesk, to: Path) -> Iterator[GroupDesk]:
    with desk.crashed(to) as copy:
        yield copy
    shutil.rmtree(to)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=15, max_size=60))
def test_after_any_history(history: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        desk = GroupDesk(Path(folder) / "data").with_topics(t=1, u=1)
        try:
            model = Model()
            for step in history:
                if step == ("restart",):
                    desk = desk.restarted()
                else:
                    take(desk, model, step)
                check(desk, model)
            with killed(desk, Path(folder) / "copy") as copy:
                check(copy, model)
        finally:
            desk.close()
