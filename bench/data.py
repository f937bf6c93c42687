"""The segments that the benchmarks run on: written by Kafka's own builder from a seed, once, into `bench/data`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import oracle
from oracle.kafka_jars import class_path

FOLDER = Path(__file__).parent / "data"
SEED = 20261115
RECORDS = 9_000_000
"""1 GB when they are not compressed."""
QUICK_RECORDS = 2_250_000
_MAKER = Path(oracle.__file__).parent / "java" / "SegmentMaker.java"


@dataclass(frozen=True, slots=True)
class Segment:
    path: Path
    records: int
    batches: int
    size_bytes: int


def segment(codec: str, records: int) -> Segment:
    """The segment with `records` records in this codec. All codecs hold the same records."""
    version = hashlib.sha256(_MAKER.read_bytes() + str(SEED).encode()).hexdigest()[:8]
    folder = FOLDER / f"{codec}-{records}-{version}"
    facts = folder / "facts.json"
    if not facts.exists():
        _make(folder, facts, codec, records)
    known = json.loads(facts.read_text())
    return Segment(folder / "00000000000000000000.log", known["records"], known["batches"], known["bytes"])


def _make(folder: Path, facts: Path, codec: str, records: int) -> None:
    print(f"making {records:,} records, {codec}", file=sys.stderr)
    unfinished = folder.with_suffix(f".unfinished-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        log = unfinished / "00000000000000000000.log"
        command = ["java", "-cp", class_path(), "SegmentMaker", str(log), codec, str(records), str(SEED)]
        made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        (unfinished / facts.name).write_text(made.stdout)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
