"""Reads the file of `--server-properties`, and checks that every line can be parsed."""

from __future__ import annotations

from duralog.errors import CorruptRecord, DuralogError
from duralog.format.java_properties import decode_properties
from duralog.storage.disk.file_source import read_small


def read_server_properties(path: str) -> bytes:
    data = read_small(path)
    if data is None:
        raise DuralogError(f"{path}: there is no such file: check --server-properties")
    try:
        decode_properties(data)
    except CorruptRecord as error:
        raise error.in_file(path) from None
    return data
