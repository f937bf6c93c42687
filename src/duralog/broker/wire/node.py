"""Who this broker is to its clients: those of one listener have one address for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int
    cluster_id: str
    rack: str | None
