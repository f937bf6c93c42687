"""Where things are in the project."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "golden" / "data"
"""Data that Apache Kafka has written."""
