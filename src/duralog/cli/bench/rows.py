"""The results of `duralog bench`: rows for a table or JSON, and a sentence that names the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duralog.cli.voice.tables import size_text, write_table

if TYPE_CHECKING:
    from duralog.cli.bench.latencies import Latencies
    from duralog.cli.voice.output import Output

MACHINE = "machine"
LOG = "log"
BROKER = "broker"

WRITE = "write"
WRITE_SYNC = "write and fsync"
READ = "read from page cache"
CHECKSUM = "CRC-32C"
APPEND_BATCHES = "append batches"
PRODUCE = "produce"

_NAMES = ("what", "rate", "records_per_s", "seconds", "of_the_limit")
_BROKER_NAMES = ("what", "rate", "records_per_s", "seconds", "p50_ms", "p99_ms", "p99.9_ms")
_BUSY = 0.85
"""A client with a higher share of CPU time is itself the limit, not the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    of: str
    """`machine`, `log` or `broker`."""
    name: str
    seconds: float
    data_bytes: int
    """Keys and values, or plain bytes."""
    file_bytes: int = 0
    """Their size in the log."""
    records: int = 0
    limit: str = ""
    """The name of the machine row that limits this one."""
    latencies: Latencies | None = None
    cpu_seconds: float = 0.0
    """Of this process."""

    @property
    def bytes_per_second(self) -> float:
        return self.data_bytes / self.seconds if self.seconds else 0.0

    @property
    def files_per_second(self) -> float:
        return self.file_bytes / self.seconds if self.seconds else 0.0

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def share_of_limit(row: Row, rows: Sequence[Row]) -> float | None:
    """The rate of a row as a share of its limit, in bytes of files."""
    limit = next((other for other in rows if other.of == MACHINE and other.name == row.limit), None)
    return row.files_per_second / limit.bytes_per_second if limit is not None and limit.bytes_per_second else None


def row_object(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    share = share_of_limit(row, rows)
    fields: dict[str, Any] = {
        "kind": "measured",
        "of": row.of,
        "name": row.name,
        "seconds": round(row.seconds, 6),
        "bytes": row.data_bytes,
        "file_bytes": row.file_bytes,
        "records": row.records,
        "bytes_per_second": round(row.bytes_per_second),
        "records_per_second": round(row.records_per_second),
    }
    if share is not None:
        fields |= {"limit": row.limit, "share_of_limit": round(share, 4)}
    if row.latencies is not None:
        fields["latency_ms"] = row.latencies.to_dict()
    return fields


def write_rows(output: Output, rows: Sequence[Row], sentence: str) -> None:
    if output.as_json:
        for row in rows:
            output.object(row_object(row, rows))
        output.object({"kind": "summary", "what_limits": sentence})
        return
    if not output.quiet:
        if any(row.of == BROKER for row in rows):
            write_table(output, _BROKER_NAMES, [_broker_cells(row) for row in rows], right=_BROKER_NAMES[1:])
        else:
            cells = [_cells(row, rows) for row in rows]
            write_table(output, _NAMES, cells, right=_NAMES[1:4], least=("seconds",))
        output.line("")
    # Not a heading: it is the result, and shown with --quiet too.
    output.line(sentence)


def _cells(row: Row, rows: Sequence[Row]) -> list[str]:
    share = share_of_limit(row, rows)
    return [
        row.name if row.of == MACHINE else f"log: {row.name}",
        _rate(row),
        _count(row),
        f"{row.seconds:.2f}",
        "-" if share is None else f"{share:.0%} of {row.limit}",
    ]


def _broker_cells(row: Row) -> list[str]:
    percentiles = ["-"] * 3 if row.latencies is None else [f"{ms:.2f}" for ms in row.latencies.percentiles_ms()]
    return [row.name, _rate(row), _count(row), f"{row.seconds:.2f}", *percentiles]


def _rate(row: Row) -> str:
    return f"{size_text(int(row.bytes_per_second))}/s" if row.data_bytes else "-"


def _count(row: Row) -> str:
    return f"{row.records_per_second:,.0f}" if row.records else "-"


def what_limits_log(rows: Sequence[Row]) -> str:
    by_name = {row.name: row for row in rows}
    durable, append = by_name[WRITE_SYNC], by_name[APPEND_BATCHES]
    taken, made = size_text(int(durable.bytes_per_second)), size_text(int(append.files_per_second))
    if durable.bytes_per_second < append.files_per_second:
        return (
            f"The disk is the limit in the long run: it takes {taken}/s permanently, appends write {made}/s until the"
            " page cache is full."
        )
    share = share_of_limit(append, rows) or 0
    near = f"{share:.0%} of what" if share < 1 else "as much as"
    return (
        f"The CPU is the limit: appends write {made}/s, {near} this machine writes to its page cache; the disk would"
        f" take {taken}/s permanently."
    )


def what_limits_broker(rows: Sequence[Row]) -> str:
    row = next(row for row in rows if row.name == PRODUCE)
    busy = row.cpu_seconds / row.seconds if row.seconds else 0
    if busy > _BUSY:
        return (
            f"This client is the limit: it computed for {busy:.0%} of the time. Several clients can load the broker"
            " more; larger records and batches make one client faster."
        )
    return (
        f"The broker, its disk or the network is the limit: this client computed for {busy:.0%} of the time and waited"
        " for responses for the rest."
    )
