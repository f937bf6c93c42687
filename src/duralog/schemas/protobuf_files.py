"""Protobuf schemas as descriptor sets: what a registry stores, as text or as a descriptor in base64, with its imports.

Text is compiled by Google's own compiler (`protoc`, of grpcio-tools) in a process of its own, with a deadline: text
that makes it fail or hang does not harm this process.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from duralog.errors import MissingExtra, SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

DESCRIPTOR_SET_PREFIX = "descriptor-set:"
"""Before the base64 of a descriptor set that is used as a schema's text, with all its imports."""

MAIN_FILE = "schema.proto"
"""What the schema itself is called among its imports."""

COMPILE_SECONDS = 30.0
MAX_FILES = 1_000
MAX_DESCRIPTOR_BYTES = 16 << 20
_LARGEST_KEPT = 1 << 20
"""Characters of a text whose descriptors are kept: a plan, its decoder and its writers often have the same one."""
# What schemas of Confluent's tools import. Only the names and numbers matter here: they describe options and one type.
_CONFLUENT_FILES = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {
            string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
        """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
        """,
}

_WARNING = re.compile(r"^WARNING: |^[IW]\d{4} |: warning: ")
_SAFE_NAME = re.compile(r"^(?!.*(^|/)\.\.?(/|$))[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$")


def compile_protobuf(text: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    """The descriptors of a schema and all that it imports, itself last; raises `SchemaError`.

    `imports` has the texts of the imported files by the names that the imports use.
    """
    with protobuf_needed():
        from google.protobuf import descriptor_pb2

    if len(imports) > MAX_FILES:
        raise SchemaError(f"the Protobuf schema has {len(imports):,} imports, more than {MAX_FILES:,}")
    serialized = {name: _descriptor(each) for name, each in ((MAIN_FILE, text), *imports.items())}
    own = serialized[MAIN_FILE]
    if own is not None and all(each is not None for each in serialized.values()):
        found = descriptor_pb2.FileDescriptorSet()
        for name, each in reversed(serialized.items()):
            assert each is not None
            each.name = name
            found.file.append(each)
        return _with_known_imports(found)
    for name, each in serialized.items():
        if each is not None:
            raise SchemaError(f"{name} is a serialized descriptor and others are text: give them in one form")
    return _compiled(text, imports)


def read_descriptor_set(data: bytes) -> FileDescriptorSet:
    """A binary `FileDescriptorSet` of `protoc --descriptor_set_out --include_imports`. Its last file is meant."""
    with protobuf_needed():
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

    found = descriptor_pb2.FileDescriptorSet()
    try:
        if len(data) > MAX_DESCRIPTOR_BYTES:
            raise SchemaError(f"the descriptor set has {len(data):,} bytes, more than {MAX_DESCRIPTOR_BYTES:,}")
        found.ParseFromString(data)
    except DecodeError as error:
        raise SchemaError(f"it is not a Protobuf descriptor set: {error}") from None
    if not found.file or not all(each.name for each in found.file):
        raise SchemaError("it is not a Protobuf descriptor set: it has no files")
    return found


def descriptor_set_text(found: FileDescriptorSet) -> str:
    """A descriptor set as the text of a schema."""
    return DESCRIPTOR_SET_PREFIX + base64.b64encode(found.SerializeToString()).decode()


def load_files(found: FileDescriptorSet) -> FileDescriptor:
    """The set's last file, in a pool of its own; raises `SchemaError` if the files do not fit together."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    try:
        for each in found.file:
            pool.Add(each)
        return pool.FindFileByName(found.file[-1].name)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise SchemaError(f"the Protobuf schema does not fit together: {str(error).strip()[:300]}") from None


def _descriptor(text: str) -> FileDescriptorProto | None:
    """What a registry's clients send instead of text: a descriptor in base64. None for text."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        data = base64.b64decode(text.strip(), validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data) if data else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def _with_known_imports(found: FileDescriptorSet) -> FileDescriptorSet:
    """The set with Google's and Confluent's own files, which clients leave out."""
    from google.protobuf import descriptor_pb2

    names = {each.name for each in found.file}
    missing = sorted({name for each in found.file for name in each.dependency} - names)
    if not missing:
        return found
    imports = "".join(f'import "{name}";\n' for name in missing if _SAFE_NAME.match(name))
    known = _compiled(f'syntax = "proto3";\n{imports}', {})
    result = descriptor_pb2.FileDescriptorSet()
    result.file.extend(each for each in known.file if each.name != MAIN_FILE and each.name not in names)
    result.file.extend(found.file)
    return result


def compile_file(path: Path, folders: Sequence[Path]) -> FileDescriptorSet:
    """The descriptors of a .proto file, whose imports are in some folders; raises `SchemaError`."""
    with tempfile.TemporaryDirectory(prefix="duralog-protobuf-") as folder:
        confluent = Path(folder) / "files"
        for name, each in _CONFLUENT_FILES.items():
            (confluent / name).parent.mkdir(parents=True, exist_ok=True)
            (confluent / name).write_text(each)
        files = [*(each.resolve() for each in folders), confluent]
        return read_descriptor_set(_run_compiler(Path(folder), path.name, files))


def _compiled(text: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    files = tuple(imports.items())
    is_small = len(text) + sum(len(each) for _, each in files) <= _LARGEST_KEPT
    return read_descriptor_set(_kept_bytes(text, files) if is_small else _compiled_bytes(text, files))


def _compiled_bytes(text: str, imports: tuple[tuple[str, str], ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="duralog-protobuf-") as folder:
        root = Path(folder)
        for name, each in {**_CONFLUENT_FILES, **dict(imports), MAIN_FILE: text}.items():
            if not _SAFE_NAME.match(name) or len(name) > 500:
                raise SchemaError(f"the Protobuf import {name[:100]!r} is not the relative name of a file")
            path = root / "files" / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(each)
            except (OSError, UnicodeEncodeError) as error:
                raise SchemaError(f"the Protobuf import {name!r} cannot be used: {error}") from None
        return _run_compiler(root, MAIN_FILE, [root / "files"])


_kept_bytes = lru_cache(maxsize=32)(_compiled_bytes)


def _run_compiler(root: Path, name: str, folders: Sequence[Path]) -> bytes:
    if importlib.util.find_spec("grpc_tools") is None:
        raise MissingExtra("to compile Protobuf schemas", "grpcio-tools", extra="schemas")
    output = root / "descriptors"
    command = [sys.executable, "-m", "grpc_tools.protoc"]
    command += [f"--proto_path={folder}" for folder in (*folders, *_common_protos())]
    command += [f"--descriptor_set_out={output}", "--include_imports", name]
    try:
        # Not in the caller's working directory: `python -m` imports from it first.
        done = subprocess.run(
            command, cwd=root, capture_output=True, timeout=COMPILE_SECONDS, check=False, env=_environment()
        )
    except subprocess.TimeoutExpired:
        raise SchemaError(f"the Protobuf schema was not compiled within {COMPILE_SECONDS:.0f} s") from None
    if done.returncode or not output.exists():
        raise SchemaError(f"the Protobuf schema cannot be compiled: {_messages(done.stderr, folders)}")
    return output.read_bytes()


def _environment() -> dict[str, str]:
    """The import path of this process, so that the compiler is found where `grpc_tools` is."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _common_protos() -> list[str]:
    """Where google/type/*.proto and the like are, if googleapis-common-protos is installed."""
    found = importlib.util.find_spec("google.type")
    places = [] if found is None or found.submodule_search_locations is None else found.submodule_search_locations
    return [str(Path(place).parent.parent) for place in places if (Path(place) / "date.proto").exists()]


def _messages(output: bytes, folders: Sequence[Path]) -> str:
    """The compiler's errors: without its warnings, and without the temporary folder."""
    text = output.decode(errors="replace")
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    lines = [line.strip()[:300] for line in text.splitlines() if not _WARNING.search(line)]
    return "; ".join(lines[:5]) or "the compiler gave no reason"


@contextmanager
def protobuf_needed() -> Iterator[None]:
    """Around an import of protobuf or ptars: without them, the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        # ptars needs the compiled form of protobuf, `google._upb`, which wheels for most platforms have.
        raise MissingExtra("for Protobuf payloads", f"protobuf and ptars ({error})", extra="schemas") from error
