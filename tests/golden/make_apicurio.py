"""Records `apicurio.jsonl`: Avro payloads by the serializers of Apicurio 2 and 3, with the values that they were given.

python -m tests.golden.make_apicurio
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from oracle.kafka_jars import apicurio_serde_class_path

TARGET = Path(__file__).parent / "apicurio.jsonl"
JAVA = Path(__file__).parents[2] / "oracle" / "apicurio_serde" / "ApicurioAvroPayloads.java"
SETTINGS = {
    "apicurio 2": ["apicurio.registry.headers.enabled=false"],
    # The ids of its Confluent-compatible interface.
    "apicurio 2, four bytes": [
        "apicurio.registry.headers.enabled=false",
        "apicurio.registry.id-handler=io.apicurio.registry.serde.Legacy4ByteIdHandler",
    ],
    "apicurio 3": ["apicurio.registry.headers.enabled=false"],
}


def main() -> None:
    lines = b""
    for name, settings in SETTINGS.items():
        path = apicurio_serde_class_path(3 if name == "apicurio 3" else 2)
        command = ["java", "-Dstdout.encoding=UTF-8", "-Dfile.encoding=UTF-8", "-cp", path, str(JAVA), name, *settings]
        lines += subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    TARGET.write_bytes(lines)


if __name__ == "__main__":
    main()
