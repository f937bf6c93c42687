"""Apicurio's registry in a process of its own, on loopback, with its schemas in memory."""

from __future__ import annotations

import urllib.request

from oracle.kafka_jars import apicurio_registry_jar
from oracle.kafka_server import free_ports
from oracle.server_process import ServerProcess


class ApicurioRegistry(ServerProcess):
    """`native` and `confluent` are the addresses of its two REST interfaces. Use it as a context manager."""

    def __init__(self) -> None:
        super().__init__("Apicurio")
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self.native = f"{self._url}/apis/registry/v2"
        self.confluent = f"{self._url}/apis/ccompat/v7"
        options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-XX:TieredStopAtLevel=1"]
        self.start(["java", *options, "-jar", str(apicurio_registry_jar())])
        self.wait_for(self._sign, every_seconds=0.2)

    def _sign(self) -> bool | None:
        try:
            with urllib.request.urlopen(f"{self._url}/health/ready", timeout=5) as answer:
                return True if answer.status == 200 else None
        except OSError:
            return None
