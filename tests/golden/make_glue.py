"""Records `glue.jsonl`: Avro payloads by AWS Glue's own serializer for Kafka, with the values that it was given.

python -m tests.golden.make_glue
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from oracle.kafka_jars import glue_class_path

TARGET = Path(__file__).parent / "glue.jsonl"
JAVA = Path(__file__).parents[2] / "oracle" / "glue" / "GluePayloads.java"


def main() -> None:
    command = ["java", "-Dstdout.encoding=UTF-8", "-Dfile.encoding=UTF-8", "-cp", glue_class_path(), str(JAVA)]
    TARGET.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
