"""Subscriptions by regular expression: checking a pattern, and finding the topics that it stands for.

A pattern stands for the topics whose whole name it matches. Its syntax and its limits are in `topics.patterns`.
"""

from __future__ import annotations

from collections.abc import Iterable

from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.patterns import compile_pattern
from duralog.broker.wire.error_codes import INVALID_REGULAR_EXPRESSION


def check_regex(pattern: str) -> None:
    """Raise `GroupRefusal` for an invalid pattern."""
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise GroupRefusal(
            INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None


def matching_topics(patterns: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The topics of each pattern. One that cannot be read, as from a log of another broker, has none."""
    names = list(topics)
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            compiled = compile_pattern(pattern)
        except ValueError:
            found[pattern] = frozenset()
        else:
            found[pattern] = frozenset(name for name in names if compiled.fullmatch(name))
    return found
