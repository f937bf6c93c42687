"""`scripts/longest_first.py`: long files first, and one Spark session and one Kafka for all tests."""

from __future__ import annotations

from scripts.longest_first import Order

SECONDS = {
    "tests/spark/test_a.py": 40,
    "tests/spark/test_b.py": 3,
    "tests/interop/test_a.py": 30,
    "tests/interop/test_b.py": 20,
    "tests/console/test_a.py": 10,
    "tests/broker/test_a.py": 50,
    "tests/broker/test_b.py": 5,
}
SPARK = ["tests/spark/test_a.py", "tests/spark/test_b.py"]
KAFKA = ["tests/interop/test_a.py", "tests/interop/test_b.py"]


def files_of(process: str, order: Order, left: list[str], processes: list[str], count: int) -> list[str]:
    taken = []
    for _ in range(count):
        taken.append(order.next_file(left, process, processes))
        left.remove(taken[-1])
    return taken


def test_a_folder_that_shares_belongs_to_one_process() -> None:
    order, left, both = Order(SECONDS), [*SECONDS, "tests/unit/test_new.py"], ["one", "two"]
    assert files_of("one", order, left, both, 1) == SPARK[:1]
    assert files_of("two", order, left, both, 3) == [*KAFKA, "tests/console/test_a.py"]
    assert files_of("two", order, left, both, 3) == [
        "tests/unit/test_new.py",
        "tests/broker/test_a.py",
        "tests/broker/test_b.py",
    ]
    assert left == SPARK[1:]
    # There is nothing else left to do.
    assert files_of("two", order, left, both, 1) == SPARK[1:]


def test_another_process_takes_the_folder_of_one_that_ended() -> None:
    order, left = Order(SECONDS), list(SECONDS)
    files_of("one", order, left, ["one", "two"], 1)
    assert files_of("two", order, left, ["two", "three"], 4) == [
        *KAFKA,
        "tests/console/test_a.py",
        "tests/spark/test_b.py",
    ]
