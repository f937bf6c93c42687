"""A search of the console over all records of a topic: DIRECTORY TOPIC CONDITION PASSES.

The condition has fewer matches than a search keeps, so that every record is read.
"""

from __future__ import annotations

import sys

from bench.workers.passes import timed
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import WantedRecords
from duralog.console.sources.opening import open_source
from duralog.filters.parsing import parse


def main(directory: str, topic: str, condition: str, passes: int) -> None:
    source = open_source(directory, start=False)
    partitions = tuple(row.partition for row in source.topic(topic))
    wanted = WantedRecords(topic=topic, partitions=partitions, where=parse(condition))

    def work() -> int:
        search = source.topic_searches.start(wanted)
        search.wait()  # type: ignore[attr-defined]
        progress = search.progress()
        if progress.state is not RunState.DONE or progress.is_cut or progress.notes:
            raise SystemExit(f"not all was searched: {progress}")
        return progress.records_read

    timed(work, passes)
    source.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
