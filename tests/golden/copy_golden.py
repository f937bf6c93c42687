"""Copies the files that the golden tests use, and writes down what they are: `copy_golden.py SOURCE`.

SOURCE is a folder of log directories that Apache Kafka wrote. `data/` is made new from it, and `MANIFEST.json`
names each file with its size and its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

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
    "compaction/before/c-txn-0/00000000000000000[01]*",
    "compaction/before/c-txn-0/00000000000000003275*",
    "compaction/before/c-txn-0/[!0]*",
    # Damaged files, as bad input.
    "recovery/cases.json",
    "recovery/before/appendtime-0/*",
    "recovery/before/codecs-[01234]/*",
    "recovery/before/codecs-librdkafka-[01234]/*",
    "recovery/before/recompress-0/*",
)


def copy(source: Path) -> None:
    chosen = sorted({path for pattern in SELECTION for path in source.glob(pattern) if path.is_file()})
    shutil.rmtree(DATA, ignore_errors=True)
    files = []
    for path in chosen:
        relative = path.relative_to(source)
        content = path.read_bytes()
        target = DATA / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        files.append(
            {"path": relative.as_posix(), "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        )
    MANIFEST.write_text(json.dumps({"written_by": WRITTEN_BY, "files": files}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(files)} files, {sum(int(str(file['size_bytes'])) for file in files)} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    copy(Path(sys.argv[1]))
