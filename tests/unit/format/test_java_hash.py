"""Java's hash of a text, against values that Java gives."""

from __future__ import annotations

import pytest

from duralog.format.java_hash import coordinator_partition, java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-transactional-id", -959806496),
        ("polygenelubricants", -(2**31)),
        ("\u00e9\u20ac", 15587),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_integer_goes_to_the_first_partition() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0


def test_a_negative_hash_counts_by_its_absolute_value() -> None:
    assert coordinator_partition("my-transactional-id", 50) == 959806496 % 50
