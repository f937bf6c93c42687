"""A process that appends and flushes until it is killed. What it prints is what it vouches for.

`python appending_process.py DIRECTORY FIRST` prints `open`, and then a line with a number whenever the records of all
numbers below it were appended and flushed. The record at an offset holds the number of the offset.
"""

from __future__ import annotations

import sys

import duralog

CONFIG = {"log.segment.bytes": 1 << 20, "log.index.interval.bytes": 1024, "log.flush.offset.checkpoint.interval.ms": 20}
TOPIC = "numbers"
PRODUCER_ID = 5


def value_of(number: int) -> bytes:
    return number.to_bytes(8) * (1 + number % 400)


def main(directory: str, number: int) -> None:
    with duralog.open(directory, config=CONFIG) as store:
        if TOPIC not in store.topics():
            store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        print("open", flush=True)
        while True:
            many = range(number, number + 1 + number % 50)
            log.append([duralog.Record(value=value_of(one)) for one in many], codec=(None, "lz4", "zstd")[number % 3])
            if number % 7 == 0:
                log.roll()
            number = many.stop
            if number % 3 == 0:
                log.flush()
                print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
