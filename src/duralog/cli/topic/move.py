"""`duralog topic move`: moves a partition of a directory, or of a running broker, to another log directory."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.voice.completions import partition_numbers
from duralog.cli.voice.failures import errors_shown
from duralog.cli.voice.options import WHAT, AsJson, NoProgress, Quiet, ServerProperties, TopicName, standard_output
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.cli.voice.unknown_names import names_checked
from duralog.operations.addresses import is_broker


def move(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    topic: TopicName,
    partition: Annotated[
        int,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            help="The partition.",
            show_default=False,
            rich_help_panel=WHAT,
            autocompletion=partition_numbers,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The log directory to move it to; for a broker, a path in its log.dirs.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ],
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Move a partition to another log directory of its node.

    DIR lists all log directories of the node, separated by commas, or is one of them with --server-properties. A broker
    keeps serving the partition meanwhile. If this command is interrupted, a broker continues; in a directory, the
    partition stays where it was.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown(), names_checked(place, topic):
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import opened_store
        from duralog.cli.voice.progress import ProgressBar
        from duralog.config.progress import Counted

        say_warnings(wanted=not quiet)
        output = standard_output(as_json=as_json, quiet=quiet)
        with ProgressBar(wanted=not (quiet or no_progress)) as bar:
            if is_broker(place):
                from duralog.client.log_dirs import move_partition

                move_partition(place, topic, partition, to, bar.show)
            else:
                with opened_store(
                    place, read_only=False, server_properties=server_properties, quiet=quiet, load_on_use=True
                ) as store:
                    log = store.partition(topic, partition)
                    label = f"{topic}-{partition}"
                    store.move_partition(
                        topic,
                        partition,
                        to,
                        on_progress=lambda move: bar.show(
                            Counted(label=label, done=move.copied_bytes, total=log.size_bytes)
                        ),
                    )
        if as_json:
            output.object({"kind": "moved", "topic": topic, "partition": partition, "directory": to})
        elif not quiet:
            output.line(f"moved {topic}-{partition} to {to}")
        output.flush()
