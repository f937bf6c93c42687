"""Copies of a compacted partition in plain Python: written once, cleaned at different times, fetched late, damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from duralog import Record
from duralog.format import record_batch
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from tests.support.cluster.made import TOPIC, write_meta

Rows = dict[int, tuple[bytes | None, bytes | None]]
"""Key and value by offset."""


@dataclass
class History:
    """What producers wrote."""

    batches: list[range] = field(default_factory=list)
    records: Rows = field(default_factory=dict)
    segments: list[int] = field(default_factory=list)
    """Their base offsets."""
    epochs: list[EpochStart] = field(default_factory=list)

    @classmethod
    def random(cls, rng: Random) -> History:
        found = cls()
        keys = rng.choice((4, 8, 30))
        offset = 0
        for segment in range(rng.randint(3, 6)):
            found.segments.append(offset)
            if not segment or rng.random() < 0.4:
                found.epochs.append(EpochStart(segment, offset))
            for _ in range(rng.randint(2, 5)):
                count = rng.randint(1, 4)
                found.batches.append(range(offset, offset + count))
                for each in found.batches[-1]:
                    value = None if rng.random() < 0.25 else b"value-%d" % each
                    found.records[each] = (b"k%d" % rng.randrange(keys), value)
                offset += count
        return found

    @property
    def end(self) -> int:
        return self.batches[-1].stop

    def epoch_at(self, offset: int) -> int:
        return [entry.epoch for entry in self.epochs if entry.start_offset <= offset][-1]


DELETED_KEY = History(
    batches=[range(3), range(3, 4), range(4, 5), range(5, 6), range(6, 7)],
    records={
        0: (b"alive", b"a"),
        1: (b"gone", b"secret"),
        2: (b"other", b"o"),
        3: (b"mid", b"m"),
        4: (b"gone", None),
        5: (b"x", b"x"),
        6: (b"y", b"y"),
    },
    segments=[0, 3, 4, 5],
    epochs=[EpochStart(0, 0)],
)
"""A cleaner removes offset 1 for the tombstone at 4, and the tombstone later."""


@dataclass
class ModelCopy:
    history: History
    kept: set[int]
    end: int
    cleaned_to: int | None = None
    files: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """By base offset, the batches that were written: with their positions."""

    def clean(self, upto: int, *, removes_tombstones: bool) -> None:
        """As a cleaner does it: of each key, the last record below an offset stays."""
        latest = {self.history.records[each][0]: each for each in sorted(self.kept) if each < upto}
        self.kept -= {
            each
            for each in self.kept
            if each < upto
            and (
                latest[self.history.records[each][0]] != each
                or (removes_tombstones and self.history.records[each][1] is None)
            )
        }
        self.cleaned_to = upto

    def rows(self) -> Rows:
        return {each: self.history.records[each] for each in sorted(self.kept)}

    def write(self, directory: Path, node_id: int, *, high_watermark: int) -> None:
        folder = directory / f"{TOPIC}-0"
        folder.mkdir(parents=True)
        write_meta(directory, node_id)
        self.files = {}
        for base, following in zip(self.history.segments, [*self.history.segments[1:], self.history.end], strict=True):
            if base > self.end or (base == self.end and base):
                break
            batches, position = [], 0
            for batch in self.history.batches:
                kept = [each for each in batch if each in self.kept]
                if batch.start < base or batch.start >= following or not kept:
                    continue
                data = record_batch.encode(
                    [
                        Record(
                            key=self.history.records[each][0],
                            value=self.history.records[each][1],
                            offset=each,
                            timestamp_ms=1_700_000_000_000 + each,
                        )
                        for each in kept
                    ],
                    base_offset=batch.start,
                    last_offset=batch.stop - 1,
                    leader_epoch=self.history.epoch_at(batch.start),
                )
                batches.append((position, data))
                position += len(data)
            (folder / f"{base:020}.log").write_bytes(b"".join(data for _, data in batches))
            self.files[base] = batches
        epochs = [entry for entry in self.history.epochs if entry.start_offset < self.end]
        (folder / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epoch_checkpoint(epochs))
        watermark = min(high_watermark, self.end)
        (directory / HIGH_WATERMARK_CHECKPOINT).write_bytes(
            encode_offset_checkpoint([PartitionOffset(TOPIC, 0, watermark)])
        )
        if self.cleaned_to is not None:
            (directory / CLEANER_OFFSET_CHECKPOINT).write_bytes(
                encode_offset_checkpoint([PartitionOffset(TOPIC, 0, self.cleaned_to)])
            )

    def intact(self, directory: Path) -> Rows:
        """The records of the written batches whose bytes are still where they were."""
        found: Rows = {}
        for base, batches in self.files.items():
            path = directory / f"{TOPIC}-0" / f"{base:020}.log"
            data = path.read_bytes() if path.exists() else b""
            for position, batch in batches:
                if data[position : position + len(batch)] == batch:
                    header = record_batch.decode_header(batch, 0)
                    found |= {
                        each.offset: (each.key, each.value) for each in record_batch.decode_records(batch, header)
                    }
        return found


def random_copies(rng: Random, history: History) -> list[ModelCopy]:
    """Some lag, some are cleaned, and some were fetched after the first one had been cleaned."""
    everything = set(history.records)
    copies: list[ModelCopy] = []
    is_compacted = rng.random() < 0.85
    ends = [batch.stop for batch in history.batches]
    for number in range(rng.choice((2, 3, 3))):
        end = history.end if number == 0 or rng.random() < 0.6 else rng.choice(ends)
        copies.append(ModelCopy(history, {each for each in everything if each < end}, end))
    if is_compacted:
        for copy in copies:
            for removes_tombstones in rng.choice(((), (False,), (True,), (False, True))):
                able = [base for base in history.segments if (copy.cleaned_to or 1) <= base <= copy.end]
                if able:
                    copy.clean(rng.choice(able), removes_tombstones=removes_tombstones)
        if rng.random() < 0.2:
            # What a follower fetches from a leader whose cleaner has been there.
            late, source = copies[-1], copies[0]
            if late.end < source.end:
                late.kept |= {each for each in source.kept if each >= late.end}
                late.end = source.end
    rng.shuffle(copies)
    return copies


def table(rows: Rows) -> dict[bytes | None, bytes]:
    """The newest value of each key that is not deleted."""
    found = {key: value for _, (key, value) in sorted(rows.items())}
    return {key: value for key, value in found.items() if value is not None}


def missing_without_reason(before: Rows, after: Rows, history: History, dense_from: int) -> Rows:
    """The records that are gone although no cleaner would have removed them. It has been below `dense_from` only."""
    newest = {key: offset for offset, (key, _) in sorted(history.records.items()) if offset < dense_from}
    last = {key: offset for offset, (key, _) in sorted(after.items())}
    return {
        offset: (key, value)
        for offset, (key, value) in before.items()
        if offset not in after
        and (
            offset >= dense_from
            or (newest[key] == offset and last.get(key, -1) < offset and (value is not None or key in last))
        )
    }


def _damage_batch(rng: Random, path: Path, batches: list[tuple[int, bytes]]) -> None:
    """Damage that a reader notices: a flipped byte that a checksum covers, or a cut in the middle of a batch."""
    position, data = rng.choice(batches)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.7:
        content[position + rng.randrange(21, len(data))] ^= 1 << rng.randrange(8)
    else:
        del content[position + rng.randrange(1, len(data)) :]
    path.write_bytes(content)


@dataclass
class Damaged:
    """A history, its copies, and the directories in which they were damaged."""

    history: History
    copies: list[ModelCopy]
    directories: list[Path]
    intact: list[Rows]
    """What is left in each directory."""
    has_lost_files: bool
    dense_from: int

    @classmethod
    def random(cls, seed: int, folder: Path) -> Damaged:
        rng = Random(seed)
        history = History.random(rng)
        copies = random_copies(rng, history)
        directories = [folder / f"{seed}" / f"broker-{number}" for number in range(1, len(copies) + 1)]
        cleaned_to = max(copy.cleaned_to or 0 for copy in copies)
        for number, (copy, directory) in enumerate(zip(copies, directories, strict=True)):
            copy.write(directory, number + 1, high_watermark=history.end)
        has_lost_files = rng.random() < 0.4
        for copy, directory in zip(copies, directories, strict=True):
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
                _damage(rng, copy, directory / f"{TOPIC}-0", may_delete=has_lost_files)
        intact = [copy.intact(directory) for copy, directory in zip(copies, directories, strict=True)]
        return cls(history, copies, directories, intact, has_lost_files, cleaned_to)

    @property
    def paths(self) -> list[str]:
        return [str(directory) for directory in self.directories]

    def tables(self, *, with_late_ones: bool) -> dict[bytes | None, set[bytes | None]]:
        """By key, what a table of the topic may show: of each copy that reached the end and, as Kafka would leave it,
        of each that fetches its end from one of these."""
        whole = [copy.rows() for copy in self.copies if copy.end == self.history.end]
        late = [
            {**copy.rows(), **{offset: row for offset, row in rows.items() if offset >= copy.end}}
            for copy in self.copies
            for rows in whole
        ]
        tables = [table(rows) for rows in (*whole, *(late if with_late_ones else []))]
        return {key: {found.get(key) for found in tables} for key, _ in self.history.records.values()}

    def log_files(self) -> dict[str, bytes]:
        """By the path in their directory's folder."""
        return {
            str(path.relative_to(directory.parent)): path.read_bytes()
            for directory in self.directories
            for path in directory.rglob(f"{TOPIC}-0/*.log")
        }


def _damage(rng: Random, copy: ModelCopy, folder: Path, *, may_delete: bool) -> None:
    paths = {base: folder / f"{base:020}.log" for base, batches in copy.files.items() if batches}
    there = {base: path for base, path in paths.items() if path.exists() and path.stat().st_size}
    if not there:
        return
    base = rng.choice(sorted(there))
    if may_delete and rng.random() < 0.5 and len(list(folder.glob("*.log"))) > 1:
        there[base].unlink()
        return
    size = there[base].stat().st_size
    left = [(position, data) for position, data in copy.files[base] if position + len(data) <= size]
    if left:
        _damage_batch(rng, there[base], left)
