"""Files as checks and dumps read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duralog.errors import CorruptRecord, DuralogError
from duralog.storage.disk.file_source import FileSource


def test_reads_at_any_position(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789")
    with FileSource(path) as source:
        assert source.size == 10
        assert source.name == str(path)
        assert source.read(3, 4) == b"3456"
        assert source.read(10, 0) == b""
        assert source.read_all(limit=10) == b"0123456789"


def test_a_file_that_was_cut_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789")
    with FileSource(path) as source:
        os.truncate(path, 4)
        with pytest.raises(CorruptRecord) as caught:
            source.read(2, 8)
    assert caught.value.file == str(path)
    assert caught.value.position == 2
    assert (caught.value.expected, caught.value.found) == ("8 bytes", "2 bytes")


def test_a_small_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(b"x" * 11)
    with FileSource(path) as source, pytest.raises(CorruptRecord, match="too large"):
        source.read_all(limit=10)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    for path in (tmp_path, tmp_path / "pipe.log"):
        with pytest.raises(DuralogError, match="not a regular file"):
            FileSource(path)
    with pytest.raises(FileNotFoundError):
        FileSource(tmp_path / "missing")
