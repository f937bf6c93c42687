"""The answers of one page of `duralog console`: DIRECTORY PATH PASSES HOW. A line for each, or for the slowest.

An answer is timed from the request to the last byte of the page; what the browser then does with it is not counted.
What a page reads from files and does not have at once (a log's explanation, say) follows by itself, and is not counted.
The console looks at the directory in the background, as it always does, so a pass goes on long enough to meet that.
CPU seconds are the console's, of one answer on average, with its share of that work.
"""

from __future__ import annotations

import http.client
import sys
import time
from urllib.parse import urlsplit

from bench.workers.console_process import RunningConsole
from bench.workers.passes import tell

ANSWERS = 20
"""Of one pass."""
PAUSE_SECONDS = 0.15
"""Between two answers, so that a pass lasts longer than the background takes from one look to the next."""
WARM_UP_ANSWERS = 3
WAIT_SECONDS = 60


def main(directory: str, path: str, passes: int, how: str) -> None:
    with RunningConsole(directory) as console:
        connection = http.client.HTTPConnection(urlsplit(console.address).netloc, timeout=WAIT_SECONDS)
        for _ in range(WARM_UP_ANSWERS):
            _seconds(connection, path)
        for _ in range(passes):
            answers, cpu = [], console.cpu_seconds
            for _ in range(ANSWERS):
                answers.append(_seconds(connection, path))
                time.sleep(PAUSE_SECONDS)
            cpu = (console.cpu_seconds - cpu) / ANSWERS
            for seconds in [max(answers)] if how == "slowest" else answers:
                tell(seconds, cpu, 1, peak_bytes=console.peak_bytes)
        connection.close()


def _seconds(connection: http.client.HTTPConnection, path: str) -> float:
    start = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    page = answer.read()
    seconds = time.perf_counter() - start
    if answer.status != 200 or not page:
        raise SystemExit(f"{path}: status {answer.status}, {len(page)} bytes")
    return seconds


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
