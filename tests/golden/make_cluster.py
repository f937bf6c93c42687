"""Records `cluster.tar.xz`: what a Kafka cluster of three nodes left on six log directories, and what consumers read.

    python -m tests.golden.make_cluster

Nodes are killed and come back, one election is unclean, cleaners run at different times, retention deletes segments, a
topic is deleted and created again while a node is down. At the end, all nodes are killed. `truth.json` has what Kafka's
own consumer read before.
"""

from __future__ import annotations

import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path

from oracle.kafka_cluster import KafkaCluster
from oracle.kafka_jars import class_path
from oracle.kafka_process import Json, KafkaProcess
from tests.support.cluster.kafka_history import live_through

TARGET = Path(__file__).parent / "cluster.tar.xz"


def main(target: Path = TARGET) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="duralog-cluster-") as work,
        KafkaProcess(class_path()) as kafka,
        KafkaCluster(kafka, Path(work)) as cluster,
    ):
        truth = live_through(cluster)
        cluster.kill(*truth["running"])
        pack(cluster, truth, target)


def pack(cluster: KafkaCluster, truth: Json, target: Path) -> None:
    """Indexes of active segments have zeros to their full size: xz makes nothing of these."""
    with lzma.open(target, "wb", preset=9) as compressed, tarfile.open(fileobj=compressed, mode="w") as archive:
        data = json.dumps(truth, separators=(",", ":")).encode()
        entry = tarfile.TarInfo("truth.json")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
        for node in cluster.nodes:
            for directory in cluster.directories(node):
                name = f"{directory.parent.name}/{directory.name}"
                archive.add(directory, name, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
