"""`duralog cluster`: the log directories of a Kafka cluster, or of its backup, together.

Each module that is imported here registers its command.
"""

from __future__ import annotations

import typer

from duralog.cli.cluster import heal, restore
from duralog.cli.cluster.cluster_command import Directories, MoreData, cluster_app, paths_given
from duralog.cli.cluster.views import Explained, Verified
from duralog.cli.voice.engine import DEFAULT_MASTER, THREADS, Conf, EngineChoice, Master, StorageOptions, engine_given
from duralog.cli.voice.failures import FAILURE, errors_shown
from duralog.cli.voice.html_page import HtmlPage, check_page_place, write_page
from duralog.cli.voice.options import (
    AsJson,
    NoProgress,
    PartitionChoice,
    Quiet,
    ReadThreads,
    TopicChoices,
    named_values,
)
from duralog.cli.voice.screen import screen
from duralog.config.times import now_ms

__all__ = ["cluster_app", "heal", "restore"]


@cluster_app.command()
def explain(
    directories: Directories = None,
    data: MoreData = None,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show which copy of each partition counts, and why.

    Consumers were served the leader's copy, up to the high watermark. Without cluster metadata, leader epochs decide.
    "same to" is the offset up to which a copy has the batches of the chosen one. Nothing is changed.

    Exit code: 0 every partition has a copy that can be read, 1 otherwise, 2 wrong usage, 130 interrupted.
    """
    paths = paths_given(directories, data)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown():
        from duralog.cli.voice.logs import say_warnings
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.cluster import explain as cluster_explain

        say_warnings(wanted=not quiet)
        request = cluster_explain.ClusterRequest(
            paths=paths, choice=Choice(topic or None, partition), storage_options=storage_options
        )
        with screen(as_json=as_json, quiet=quiet, no_progress=True) as shown:
            view = Explained(shown.output)
            report = cluster_explain.explain(request, on_partition=view.add)
            view.end(report)
        if report.unreadable:
            raise typer.Exit(FAILURE)


@cluster_app.command()
def verify(
    ctx: typer.Context,
    directories: Directories = None,
    data: MoreData = None,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    html: HtmlPage = None,
    storage_option: StorageOptions = None,
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the next three)
    threads: ReadThreads = 2,  # noqa: ARG001
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Compare all copies of each partition; nothing is changed.

    Damage, holes and divergence of each copy, replicas that lag or are missing, stray folders, and offsets that no
    copy has. Batches are compared by offsets, leader epoch and checksum, records only where these differ. With --engine
    spark, all machines must see the directories under the same paths or URLs.

    Exit code: 0 all is well, 1 there are findings or something cannot be read, 2 wrong usage, 130 interrupted.
    """
    chosen = engine_given(ctx, with_both=("storage_option",))
    paths = paths_given(directories, data)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown():
        from duralog.cli.voice.logs import say_warnings

        if html is not None:
            check_page_place(html)
        chosen.announce(quiet=quiet)
        say_warnings(wanted=not quiet)
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.cluster.explain import ClusterRequest
        from duralog.operations.cluster.verify import verify_cluster

        request = ClusterRequest(paths=paths, choice=Choice(topic or None, partition), storage_options=storage_options)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            chosen.workers() as workers,
        ):
            view = Verified(shown.output)
            report = verify_cluster(request, workers, on_progress=shown.bar.show, on_partition=view.add)
            view.end(report)
            if html is not None:
                from duralog.cli.cluster.page import cluster_page

                write_page(html, cluster_page(report, ", ".join(paths), now_ms()))
                if not shown.output.as_json:
                    shown.output.note(html, "the same as a page, with a picture of all copies: open it in a browser")
        if not report.is_sound:
            raise typer.Exit(FAILURE)
