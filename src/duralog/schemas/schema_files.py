"""Schemas from files, for topics without a registry: Avro, JSON Schema, Protobuf's text and descriptor sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from duralog.errors import SchemaError
from duralog.schemas.protobuf_files import compile_file, descriptor_set_text, read_descriptor_set
from duralog.schemas.registered_schema import MAX_SCHEMA_BYTES, RegisteredSchema, SchemaType

_TEXTS = {".avsc": SchemaType.AVRO, ".json": SchemaType.JSON}
_DESCRIPTOR_SETS = (".desc", ".pb", ".protoset", ".binpb", ".fds")
SCHEMA_FILES = (*_TEXTS, ".proto", *_DESCRIPTOR_SETS)


def read_schema_file(path: str | Path, import_folders: Sequence[str | Path] = ()) -> RegisteredSchema:
    """The schema of a file, by its suffix; raises `SchemaError`.

    A .proto file's imports are looked up in its folder and in `import_folders`.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SCHEMA_FILES:
        raise SchemaError(f"{path}: a schema's file ends in {', '.join(SCHEMA_FILES)}")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise SchemaError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"{path}: it has more than {MAX_SCHEMA_BYTES:,} bytes")
    try:
        if suffix in _TEXTS:
            return RegisteredSchema(type=_TEXTS[suffix], text=data.decode())
        if suffix == ".proto":
            found = compile_file(path, [path.parent, *map(Path, import_folders)])
        else:
            found = read_descriptor_set(data)
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: it is not UTF-8") from None
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None
    return RegisteredSchema(type=SchemaType.PROTOBUF, text=descriptor_set_text(found))
