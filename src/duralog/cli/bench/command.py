"""`duralog bench`: measures this machine and the log on it, or a broker.

This module is the command; `machine` and `log` measure a directory, `broker` a broker. `make bench` of the repository
compares with Kafka and others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import WrongUsage, errors_shown, say
from duralog.cli.voice.options import HOW, AsJson, CodecChoice, NoProgress, Quiet, parsed, standard_output
from duralog.cli.voice.tables import plural
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.client.connection import kafka_client
from duralog.config.byte_sizes import parse_bytes
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.cli.bench.rows import Row
    from duralog.format.compression import Codec

_DEFAULT_SIZE = "256m"
_DEFAULT_SECONDS = 5.0
_SMALLEST_RECORD = 32
_LARGEST_RECORD = 8 << 20
_ACKS = ("0", "1", "all")


def bench(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=f"How much data, in a directory ({_DEFAULT_SIZE}).", rich_help_panel=HOW),
    ] = None,
    record_size: Annotated[
        str, typer.Option(metavar="SIZE", help="The size of a record, key and value.", rich_help_panel=HOW)
    ] = "100",
    codec: CodecChoice = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0.1,
            max=3600,
            help=f"How long to produce, to a broker ({_DEFAULT_SECONDS:g}).",
            rich_help_panel=HOW,
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many to produce, in place of --seconds.", rich_help_panel=HOW),
    ] = None,
    acks: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="When a broker acknowledges: 0, 1 or all (all).", rich_help_panel=HOW),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Measure this machine and the log on it, or a broker.

    On a directory, by default the one for temporary files: how fast the machine writes, reads and checks bytes, and how
    fast the log appends, reads, verifies, recovers and compacts. Existing topics are not touched: it works in a scratch
    folder, which is removed at the end. On a broker: rates and latencies of producing and consuming, in a temporary
    topic. No Kafka is needed. To compare with Kafka and other systems, use make bench of the repository.

    Exit code: 0 measured, 1 something could not be read, written or reached, 2 wrong usage, 130 interrupted.
    """
    record_bytes = parsed("--record-size", _parse_record_size, record_size)
    where = None if target is None and data is None else target_given(target, data, config_file)
    on_broker = where is not None and is_broker(where)
    if on_broker and size is not None:
        raise WrongUsage("--size is for a directory: give --seconds or --records")
    if not on_broker and (seconds is not None or records is not None or acks is not None):
        raise WrongUsage("--seconds, --records and --acks are for a broker: give HOST:PORT, or --size")
    if seconds is not None and records is not None:
        raise WrongUsage("--seconds and --records: give one of them")
    if acks is not None and acks not in _ACKS:
        raise WrongUsage(f"--acks: it is {', '.join(_ACKS[:-1])} or {_ACKS[-1]}, not {acks!r}")
    size_bytes = parsed("--size", parse_bytes, size or _DEFAULT_SIZE)
    with errors_shown():
        from duralog.cli.bench.rows import what_limits_broker, what_limits_log, write_rows
        from duralog.format.compression import Codec

        chosen = Codec.NONE if codec is None else parsed("--codec", Codec.named, codec)
        is_shown = not (no_progress or quiet)
        if on_broker:
            kafka_client()
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores and not quiet:
            busy = f"a load of {load:.1f} on {plural(cores, 'core')}"
            say(f"other processes keep this machine busy ({busy}): figures will be lower")
        if where is not None and on_broker:
            from duralog.cli.bench.broker import BrokerLoad, broker_rows
            from duralog.cli.voice.progress import CountingBar

            load_on_broker = BrokerLoad(
                record_bytes=record_bytes,
                codec=chosen.name.lower(),
                acks=acks or "all",
                seconds=None if records is not None else seconds or _DEFAULT_SECONDS,
                records=records,
            )
            with CountingBar(None, unit="record", wanted=is_shown) as progress:
                rows = list(broker_rows(where, load_on_broker, progress.begin, progress.advance))
            sentence = what_limits_broker(rows)
        else:
            rows = _on_directory(where, size_bytes, record_bytes, chosen, quiet=quiet, is_shown=is_shown)
            sentence = what_limits_log(rows)
        output = standard_output(as_json=as_json, quiet=quiet)
        write_rows(output, rows, sentence)
        output.flush()


def _parse_record_size(text: str) -> int:
    size = parse_bytes(text)
    if not _SMALLEST_RECORD <= size <= _LARGEST_RECORD:
        raise ValueError(f"a record has from {_SMALLEST_RECORD} to {_LARGEST_RECORD:,} bytes here, not {size:,}")
    return size


def _on_directory(
    directory: str | None, size_bytes: int, record_bytes: int, codec: Codec, *, quiet: bool, is_shown: bool
) -> list[Row]:
    from duralog.cli.bench.scratch import scratch_folder
    from duralog.cli.voice.compilation import announce_compilation
    from duralog.cli.voice.progress import CountingBar

    announce_compilation(quiet=quiet)
    from duralog.cli.bench.data import Workload
    from duralog.cli.bench.log import log_rows, planned_bytes
    from duralog.cli.bench.machine import PASSES, machine_rows

    work = Workload(max(size_bytes, record_bytes), record_bytes, codec)
    total = 4 * PASSES * size_bytes + planned_bytes(work.size_bytes)
    with (
        # Up to three logs, and the output of compaction.
        scratch_folder(directory, 4 * work.size_bytes + (256 << 20)) as folder,
        CountingBar(total, wanted=is_shown) as progress,
    ):
        rows = list(machine_rows(folder, size_bytes, progress.begin, progress.advance))
        return rows + list(log_rows(folder, work, progress.begin, progress.advance))
