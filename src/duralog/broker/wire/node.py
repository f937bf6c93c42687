"""This broker as its clients know it: each listener has its own address."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int
    cluster_id: str
    rack: str | None
