"""Records `protobuf_framings.jsonl`: Protobuf payloads by the serializers of AWS Glue and of Apicurio 2 and 3.

    python -m tests.golden.make_protobuf_framings

The first line has the schema. The others have a payload each: a message whose field `id`, if it has one, is 300.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from duralog.schemas.protobuf_files import compile_protobuf
from oracle.kafka_jars import apicurio_serde_class_path, glue_class_path

TARGET = Path(__file__).parent / "protobuf_framings.jsonl"
ORACLE = Path(__file__).parents[2] / "oracle"
SCHEMA = """
syntax = "proto3";
package shop;
message Order {
  int64 id = 1;
  map<string, int32> sizes = 2;
  message Line { int64 id = 1; message Part { int64 id = 1; } }
  message Address { int64 id = 1; }
}
message Empty {}
message Bill { int64 id = 1; }
message bill_2 { int64 id = 1; }
message Order2 { int64 id = 1; }
"""
_SETTINGS = (
    "apicurio.registry.headers.enabled=false",
    # It would compare with what the registry has.
    "apicurio.registry.serde.validation-enabled=false",
)


def main() -> None:
    lines = [json.dumps({"schema": SCHEMA})]
    with tempfile.TemporaryDirectory(prefix="duralog-framings-") as folder:
        descriptors = Path(folder) / "descriptors"
        descriptors.write_bytes(compile_protobuf(SCHEMA, {}).SerializeToString())
        lines += _run(glue_class_path(), "glue/GlueProtobufPayloads.java", str(descriptors))
        for version in (2, 3):
            path = apicurio_serde_class_path(version)
            program = "apicurio_serde/ApicurioProtobufPayloads.java"
            lines += _run(path, program, f"apicurio {version}", str(descriptors), *_SETTINGS)
    TARGET.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _run(class_path: str, program: str, *arguments: str) -> list[str]:
    command = ["java", "-Dstdout.encoding=UTF-8", "-cp", class_path, str(ORACLE / program), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


if __name__ == "__main__":
    main()
