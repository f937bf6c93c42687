"""Replication of one partition in plain Python: leaders, followers that lag, elections, truncation, retention.

Only what decides which records a consumer is served is modelled, by Kafka's rules: a follower truncates by leader
epochs when there is a new leader (KIP-101, KIP-279), the high watermark is the lowest end in the ISR as far as the
leader knows the ends, a new leader notes the start of its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from duralog.format.checkpoints import EpochStart
from duralog.scanning.cluster.choice import CopyState
from duralog.storage.metadata.cluster_metadata import PartitionRegistration

NO_LEADER = -1


@dataclass
class Replica:
    node_id: int
    values: list[tuple[int, int]] = field(default_factory=list)
    """The epoch and the value at each offset, those that retention or the cleaner removed included."""
    start: int = 0
    removed: set[int] = field(default_factory=set)
    """By the cleaner."""
    cleaned_to: int | None = None
    epochs: list[EpochStart] = field(default_factory=list)
    high_watermark: int = 0
    checkpoint: int | None = None
    is_alive: bool = True
    followed_epoch: int = -1
    """The leader epoch in which it has truncated its log."""

    @property
    def end(self) -> int:
        return len(self.values)

    def note_epoch(self, epoch: int, start: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry.epoch < epoch and entry.start_offset < start]
        self.epochs.append(EpochStart(epoch, start))

    def append(self, epoch: int, value: int) -> None:
        if not self.epochs or self.epochs[-1].epoch < epoch:
            self.note_epoch(epoch, self.end)
        self.values.append((epoch, value))

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends; (-1, -1) if there is none."""
        if not self.epochs or epoch > self.epochs[-1].epoch:
            return -1, -1
        if epoch == self.epochs[-1].epoch:
            return epoch, self.end
        following = next(place for place, entry in enumerate(self.epochs) if entry.epoch > epoch)
        return (self.epochs[following - 1].epoch if following else epoch), self.epochs[following].start_offset

    def truncate(self, end: int) -> None:
        del self.values[end:]
        self.removed = {offset for offset in self.removed if offset < end}
        self.cleaned_to = None if self.cleaned_to is None else min(self.cleaned_to, end)
        self.epochs = [entry for entry in self.epochs if entry.start_offset < end]
        self.high_watermark = min(self.high_watermark, end)
        self.start = min(self.start, end)

    def state(self) -> CopyState:
        first = next((entry for entry in reversed(self.epochs) if entry.start_offset <= self.start), None)
        kept = [entry for entry in self.epochs if entry.start_offset > self.start]
        if first is not None:
            kept.insert(0, EpochStart(first.epoch, self.start))
        return CopyState(
            node_id=self.node_id,
            start_offset=self.start,
            end_offset=self.end,
            epochs=tuple(kept),
            high_watermark=self.checkpoint,
            cleaned_to=self.cleaned_to,
        )


class ReplicatedPartition:
    """One partition on some nodes. `step` does something that can happen."""

    def __init__(self, rng: Random, nodes: int = 3) -> None:
        self.rng = rng
        self.replicas = [Replica(number) for number in range(1, nodes + 1)]
        self.isr = {replica.node_id for replica in self.replicas}
        self.leader = NO_LEADER
        self.epoch = -1
        self.last_leader = self.replicas[0]
        self._known_ends: dict[int, int] = {}
        self._next_value = 0
        self._elect(self.replicas[0])

    def step(self) -> None:
        actions = (
            (8, self._produce),
            (10, self._fetch),
            (2, self._shrink),
            (1, self._kill),
            (3, self._restart),
            (1, self._elect_uncleanly),
            (2, self._checkpoint),
            (1, self._clean),
            (1, self._retain),
        )
        weights, functions = zip(*actions, strict=True)
        self.rng.choices(functions, weights)[0]()

    def checkpoint_all(self) -> None:
        for replica in self.replicas:
            replica.checkpoint = replica.high_watermark

    def registration(self) -> PartitionRegistration:
        return PartitionRegistration(
            partition=0,
            replicas=tuple(replica.node_id for replica in self.replicas),
            isr=tuple(sorted(self.isr)),
            leader=self.leader,
            leader_epoch=self.epoch,
            partition_epoch=0,
        )

    @property
    def _leading(self) -> Replica | None:
        return None if self.leader == NO_LEADER else self.replicas[self.leader - 1]

    def _alive(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.is_alive]

    def _elect(self, replica: Replica) -> None:
        self.epoch += 1
        self.leader = replica.node_id
        replica.note_epoch(self.epoch, replica.end)
        replica.followed_epoch = self.epoch
        self._known_ends = {}
        self.last_leader = replica
        self._advance()

    def _elect_from_isr(self) -> None:
        able = [replica for replica in self._alive() if replica.node_id in self.isr]
        if able:
            self._elect(self.rng.choice(able))
        else:
            self.epoch += 1
            self.leader = NO_LEADER

    def _advance(self) -> None:
        leader = self._leading
        assert leader is not None
        ends = {**self._known_ends, leader.node_id: leader.end}
        if all(node in ends for node in self.isr):
            leader.high_watermark = max(leader.high_watermark, min(ends[node] for node in self.isr))

    def _produce(self) -> None:
        if (leader := self._leading) is not None:
            for _ in range(self.rng.randint(1, 5)):
                leader.append(self.epoch, self._next_value)
                self._next_value += 1
            self._advance()

    def _fetch(self) -> None:
        leader = self._leading
        followers = [replica for replica in self._alive() if replica is not leader]
        if leader is None or not followers:
            return
        follower = self.rng.choice(followers)
        if follower.followed_epoch < self.epoch:
            self._truncate_as(follower, leader)
            follower.followed_epoch = self.epoch
        if follower.end < leader.start:
            follower.values = list(leader.values[: leader.start])
            follower.epochs = []
            follower.start = leader.start
        for epoch, value in leader.values[follower.end : follower.end + self.rng.choice((1, 3, 1000))]:
            if follower.end in leader.removed:
                follower.removed.add(follower.end)
            follower.append(epoch, value)
        follower.start = max(follower.start, min(leader.start, follower.end))
        self._known_ends[follower.node_id] = follower.end
        if follower.end >= leader.high_watermark and follower.end >= self._epoch_start(leader):
            self.isr.add(follower.node_id)
        self._advance()
        follower.high_watermark = max(follower.high_watermark, min(leader.high_watermark, follower.end))

    def _epoch_start(self, leader: Replica) -> int:
        return next(entry.start_offset for entry in leader.epochs if entry.epoch == self.epoch)

    @staticmethod
    def _truncate_as(follower: Replica, leader: Replica) -> None:
        while follower.epochs:
            asked = follower.epochs[-1].epoch
            epoch, end = leader.end_of(asked)
            if epoch == asked:
                follower.truncate(min(end, follower.end))
                return
            own_epoch, own_end = follower.end_of(epoch)
            if own_epoch == epoch:
                follower.truncate(min(end, own_end))
                return
            # KIP-279: drop the foreign epoch and ask for the one before.
            follower.truncate(follower.epochs[-1].start_offset)
        follower.truncate(min(follower.end, leader.start))

    def _shrink(self) -> None:
        leader = self._leading
        if leader is None:
            return
        for replica in self.replicas:
            is_behind = self._known_ends.get(replica.node_id, -1) < leader.end
            if replica is not leader and (not replica.is_alive or is_behind):
                self.isr.discard(replica.node_id)
        self._advance()

    def _kill(self) -> None:
        alive = self._alive()
        if not alive:
            return
        victim = self.rng.choice(alive)
        victim.is_alive = False
        victim.followed_epoch = -1
        if len(self.isr) > 1:
            self.isr.discard(victim.node_id)
        if victim.node_id == self.leader:
            self._elect_from_isr()
        elif self.leader != NO_LEADER:
            self._advance()

    def _restart(self) -> None:
        for replica in self.replicas:
            if not replica.is_alive:
                replica.is_alive = True
                # Kafka drops epochs without records when it loads a log, and starts with the checkpoint.
                replica.epochs = [entry for entry in replica.epochs if entry.start_offset < replica.end]
                replica.high_watermark = min(replica.checkpoint or 0, replica.end)
                if self.leader == NO_LEADER and replica.node_id in self.isr:
                    self._elect(replica)
                return

    def _elect_uncleanly(self) -> None:
        alive = self._alive()
        if self.leader == NO_LEADER and alive:
            chosen = self.rng.choice(alive)
            self.isr = {chosen.node_id}
            self._elect(chosen)

    def _checkpoint(self) -> None:
        for replica in self._alive():
            replica.checkpoint = replica.high_watermark

    def _clean(self) -> None:
        alive = self._alive()
        if alive:
            replica = self.rng.choice(alive)
            below = range(replica.start, replica.high_watermark)
            replica.removed |= {offset for offset in below if self.rng.random() < 0.3}
            replica.cleaned_to = replica.high_watermark

    def _retain(self) -> None:
        if (leader := self._leading) is not None:
            leader.start = self.rng.randint(leader.start, max(leader.start, leader.high_watermark))
