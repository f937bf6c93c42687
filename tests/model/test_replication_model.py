"""The choice of a copy against histories of replication: what is read is what the last leader had."""

from __future__ import annotations

from random import Random

import pytest

from duralog.scanning.cluster.choice import Reason, choose
from tests.support.cluster.replication import NO_LEADER, ReplicatedPartition

SEEDS = range(300)


def live(seed: int, steps: int = 120) -> tuple[ReplicatedPartition, Random]:
    rng = Random(seed)
    partition = ReplicatedPartition(rng, nodes=rng.choice((2, 3, 3, 4)))
    for _ in range(rng.randint(5, steps)):
        partition.step()
    return partition, rng


def check_parts(partition, choice, states, *, to_end):
    """Every offset that is read has the last leader's record. What is missing was removed by a cleaner."""
    replicas = partition.replicas
    truth = partition.last_leader.values
    read = 0
    for part in choice.parts(states, to_end=to_end):
        copy = replicas[states[part.copy].node_id - 1]
        for offset in range(part.start_offset, part.end_offset):
            assert copy.values[offset] == truth[offset], f"offset {offset} of node {copy.node_id}"
        read = part.end_offset
    return read


@pytest.mark.parametrize("block", range(6))
@pytest.mark.parametrize("metadata", ["now", "none", "older"])
def test_all_copies_give_the_log_of_the_last_leader(metadata, block):
    for seed in SEEDS[block::6]:
        rng = Random(seed)
        partition = ReplicatedPartition(rng, nodes=rng.choice((2, 3, 3, 4)))
        steps = rng.randint(5, 120)
        remembered = rng.randint(0, steps)
        older = partition.registration()
        for step in range(steps):
            if step == remembered:
                older = partition.registration()
            partition.step()
        registration = {"now": partition.registration(), "none": None, "older": older}[metadata]
        states = [replica.state() for replica in partition.replicas]
        choice = choose(states, registration)
        watermarks = [replica.checkpoint or 0 for replica in partition.replicas if replica is partition.last_leader]
        try:
            read = check_parts(partition, choice, states, to_end=False)
            everything = check_parts(partition, choice, states, to_end=True)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
        assert everything >= read
        assert choice.high_watermark >= max(watermarks)
        assert everything >= partition.last_leader.end or partition.last_leader.start == partition.last_leader.end
        if metadata == "now" and partition.leader != NO_LEADER:
            assert choice.reason is Reason.LEADER
            assert states[choice.copy].node_id == partition.leader


def test_with_checkpoints_of_now_all_that_consumers_saw_is_read():
    for seed in SEEDS:
        partition, _ = live(seed)
        partition.checkpoint_all()
        states = [replica.state() for replica in partition.replicas]
        for registration in (partition.registration(), None):
            choice = choose(states, registration)
            leader = partition.last_leader
            read = check_parts(partition, choice, states, to_end=False)
            assert read >= leader.high_watermark or leader.start == leader.high_watermark


def test_what_the_cleaner_of_a_copy_has_seen_is_read():
    beyond = 0
    for seed in SEEDS:
        partition, _ = live(seed)
        states = [replica.state() for replica in partition.replicas]
        choice = choose(states, partition.registration())
        leader = partition.last_leader
        if leader.checkpoint is not None and leader.cleaned_to is not None:
            assert choice.high_watermark >= min(leader.cleaned_to, choice.agreed[leader.node_id - 1])
            beyond += leader.cleaned_to > leader.checkpoint
    assert beyond > 10


def test_a_leaders_copy_that_is_cut_is_continued_by_the_others():
    continued = 0
    for seed in SEEDS:
        partition, rng = live(seed)
        partition.checkpoint_all()
        leader = partition.last_leader
        states = [replica.state() for replica in partition.replicas]
        whole = choose(states, partition.registration())
        if partition.leader == NO_LEADER or leader.end == leader.start:
            continue
        cut = rng.randint(leader.start, leader.end)
        states[leader.node_id - 1] = _cut(states[leader.node_id - 1], cut)
        choice = choose(states, partition.registration())
        assert choice.reason is Reason.LEADER
        assert choice.high_watermark >= whole.high_watermark or whole.watermark_source.name == "ISR"
        check_parts(partition, choice, states, to_end=False)
        continued += len({part.copy for part in choice.parts(states)}) > 1
    assert continued > 20


def _cut(state, end):
    return type(state)(
        node_id=state.node_id,
        start_offset=state.start_offset,
        end_offset=end,
        epochs=state.epochs,
        high_watermark=state.high_watermark,
    )


def test_some_histories_have_unclean_elections_and_copies_that_diverged():
    diverged = 0
    for seed in SEEDS:
        partition, _ = live(seed)
        states = [replica.state() for replica in partition.replicas]
        choice = choose(states, partition.registration())
        diverged += any(end < state.end_offset for end, state in zip(choice.agreed, states, strict=True))
        longer = [state for state in states if state.end_offset > states[choice.copy].end_offset]
        diverged += bool(longer)
    assert diverged > 30
