"""Copies the files that the golden tests use, and writes down what they are: `copy_golden.py SOURCE`.

SOURCE is a folder of log directories that Apache Kafka wrote. `data/` is made new from it, and `MANIFEST.json`
names each file with its size and its SHA-256. Of the damaged partitions, a file whose contents are among the copied
ones already is named with the path of those (`same_as`); of what Kafka made of them, only the digests are kept.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE / "data"
MANIFEST = HERE / "MANIFEST.json"

WRITTEN_BY = "Apache Kafka 4.3.1"

SELECTION = (
    # A whole log directory after a clean shutdown, and the old formats.
    "store/**/*",
    "legacy/**/*",
    # What the cleaner made: of each partition the segments that it wrote, and of one also what they were made from.
    "compaction/after/cleaner-offset-checkpoint",
    "compaction/after/c-none-0/0000000000000000[03]*",
    "compaction/after/c-none-0/[!0]*",
    "compaction/after/c-tomb-0/0000000000000000[03]*",
    "compaction/after/c-tomb-0/[!0]*",
    "compaction/after/c-txn-0/*.snapshot",
    "compaction/after/c-txn-0/0000000000000000[03]*",
    "compaction/after/c-txn-0/00000000000000006587*",
    "compaction/after/c-txn-0/[!0]*",
    "compaction/before/c-txn-0/*.log",
    "compaction/before/c-txn-0/*index",
    "compaction/before/c-txn-0/*.snapshot",
    "compaction/before/c-txn-0/[!0]*",
    # Damaged files, as bad input.
    "recovery/cases.json",
    "recovery/before/appendtime-0/*",
    "recovery/before/codecs-[01234]/*",
    "recovery/before/codecs-librdkafka-[01234]/*",
    "recovery/before/recompress-0/*",
)
COPIED_ONCE = ("recovery/before/**/*",)
DIGESTS_ONLY = ("recovery/after/*-[0-9]/*",)


def copy(source: Path) -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    files: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    for path in _chosen(source, SELECTION):
        files.append(_described(source, path))
        places[files[-1]["sha256"]] = files[-1]["path"]
        _copy(source, path)
    known = {file["path"] for file in files}
    shared: list[dict[str, Any]] = []
    for path in _chosen(source, COPIED_ONCE):
        file = _described(source, path)
        if file["path"] in known:
            continue
        if file["sha256"] in places:
            shared.append({**file, "same_as": places[file["sha256"]]})
        else:
            files.append(file)
            places[file["sha256"]] = file["path"]
            _copy(source, path)
    manifest = {
        "written_by": WRITTEN_BY,
        "files": sorted(files, key=lambda file: file["path"]),
        "shared": shared,
        "digests": [_described(source, path) for path in _chosen(source, DIGESTS_ONLY)],
    }
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    print(f"{len(files)} files, {sum(file['size_bytes'] for file in files)} bytes")


def _chosen(source: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in source.glob(pattern) if path.is_file()})


def _described(source: Path, path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {
        "path": path.relative_to(source).as_posix(),
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _copy(source: Path, path: Path) -> None:
    target = DATA / path.relative_to(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    copy(Path(sys.argv[1]))
