"""The golden data is what the manifest says: nothing changed, nothing missing, nothing more."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

HERE = Path(__file__).parent


def test_the_data_is_what_the_manifest_says():
    manifest = json.loads((HERE / "MANIFEST.json").read_text(encoding="utf-8"))
    assert manifest["written_by"] == "Apache Kafka 4.3.1"
    found = {}
    for path in (HERE / "data").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found[path.relative_to(HERE / "data").as_posix()] = (len(content), hashlib.sha256(content).hexdigest())
    assert found == {file["path"]: (file["size_bytes"], file["sha256"]) for file in manifest["files"]}


def test_shared_files_are_among_the_copied_ones():
    manifest = json.loads((HERE / "MANIFEST.json").read_text(encoding="utf-8"))
    copied = {file["path"]: file["sha256"] for file in manifest["files"]}
    assert manifest["shared"]
    assert all(copied[file["same_as"]] == file["sha256"] for file in manifest["shared"])
