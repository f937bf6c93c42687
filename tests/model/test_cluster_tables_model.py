"""Tables that continue from run to run, against histories of replication: other copies each time, also older ones.

What a table has is always what the copy that counts has at these offsets, or the run is refused.
"""

from __future__ import annotations

from random import Random

import pytest

from duralog.errors import OffsetOutOfRange
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import choose
from duralog.spark.lake.log_ends import DETAIL, check_ends, remember_ends
from duralog.spark.lake.table_state import StateRefused, TableFormat, TableState
from tests.support.cluster.replication import NO_LEADER, ReplicatedPartition

PARTITION = TopicPartition("orders", 0)
RUNS = 6


class Directories:
    """Some copies as they are now, as `duralog.scanning.logs.Logs` has them, without any batches."""

    cluster_id = "cluster"
    is_remote = False

    def __init__(self, replicas, registration):
        self._values = {replica.node_id: list(replica.values) for replica in replicas}
        self._states = [replica.state() for replica in replicas]
        self.choice = choose(self._states, registration)

    def history(self, _):
        return self.choice.epochs

    def end_offset(self, _):
        return self.choice.end_offset

    def start_offset(self, _):
        parts = self.choice.parts(self._states, to_end=True)
        return parts[0].start_offset if parts else self.choice.start_offset

    def topic_id(self, _):
        return "id"

    def views_with(self, *_):
        return iter(())

    def records(self, *, to_end):
        return {
            offset: self._values[self._states[part.copy].node_id][offset]
            for part in self.choice.parts(self._states, to_end=to_end)
            for offset in range(part.start_offset, part.end_offset)
        }


class Table:
    def __init__(self):
        self.records = {}
        self.state = TableState(
            job="export",
            topic="orders",
            topic_id="id",
            table_format=TableFormat.PARQUET,
            isolation="read_uncommitted",
            headers=False,
            next_offsets={},
            run=0,
        )

    @property
    def taken(self):
        return self.state.next_offsets.get(0, 0)

    def continue_from(self, directories):
        """Raises if the directories are not of the same log."""
        check_ends(directories, self.state, [PARTITION], where="lake", taken="was exported up to", advice="Stop")
        new = {offset: value for offset, value in directories.records(to_end=False).items() if offset >= self.taken}
        end = max(self.taken, max(new, default=-1) + 1)
        ends = remember_ends(directories, self.state, {PARTITION: end}) if end else {}
        self.records |= new
        self.state = TableState(
            **{
                **{name: getattr(self.state, name) for name in TableState.__dataclass_fields__},
                "next_offsets": {0: end},
                "details": {DETAIL: ends, "made_from": {"is_cluster": True, "cluster_id": "cluster"}},
            }
        )


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("metadata", ["now", "none", "older"])
def test_a_table_never_has_what_the_log_has_not(metadata, block):
    continued = refused = 0
    for seed in range(block, 400, 4):
        rng = Random(seed)
        partition = ReplicatedPartition(rng, nodes=rng.choice((2, 3, 3, 4)))
        table, older = Table(), partition.registration()
        for _ in range(RUNS):
            for _ in range(rng.randint(1, 25)):
                partition.step()
            registration = {"now": partition.registration(), "none": None, "older": older}[metadata]
            older = partition.registration() if rng.random() < 0.5 else older
            given = rng.sample(partition.replicas, rng.randint(1, len(partition.replicas)))
            directories = Directories(given, registration)
            before = table.taken
            try:
                table.continue_from(directories)
            except (StateRefused, OffsetOutOfRange):
                refused += 1
                continue
            continued += table.taken > before > 0
            there = directories.records(to_end=True)
            differing = [offset for offset, value in there.items() if table.records.get(offset, value) != value]
            assert not differing, f"seed {seed}: {differing[:5]}"
    assert continued > 50
    assert refused > 10


def test_the_log_of_the_leader_continues_a_table_that_has_its_records():
    """Nothing is refused without a reason."""
    continued = 0
    for seed in range(300):
        rng = Random(seed)
        partition = ReplicatedPartition(rng, nodes=rng.choice((2, 3, 4)))
        table = Table()
        for _ in range(RUNS):
            for _ in range(rng.randint(1, 25)):
                partition.step()
            directories = Directories(partition.replicas, partition.registration())
            leader = partition.last_leader.values
            is_same = all(leader[offset : offset + 1] == [value] for offset, value in table.records.items())
            if partition.leader == NO_LEADER or not is_same:
                break
            before = table.taken
            table.continue_from(directories)
            continued += table.taken > before > 0
    assert continued > 200
