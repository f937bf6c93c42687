"""Subscriptions by regular expression: checking a pattern, and finding the topics that it stands for.

Patterns come from clients. They are RE2's, as in Kafka: no backreferences and no looking around, so that matching takes
time in proportion to the topic's name. What Kafka does not have is a bound on what a pattern may cost: one that is far
longer than any list of topics, or would take long to compile while all other clients wait, is refused as too large. A
pattern stands for the topics whose whole name it matches.

RE2 is loaded when the first pattern comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from duralog.broker.error_codes import INVALID_REGULAR_EXPRESSION
from duralog.broker.groups.refusal import GroupRefusal

_MOST_CHARACTERS: Final = 32_768
_MOST_UNICODE_CLASSES: Final = 64
"""Of the kind of `\\pL`, each of which stands for hundreds of ranges."""
_MOST_BYTES: Final = 2 << 20
"""That a compiled pattern may take."""
_TOO_LARGE: Final = "pattern too large"

_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": _TOO_LARGE,
}
"""What RE2 for C++ says, and what Kafka's RE2 for Java says for it. The rest is the same."""


def check_regex(pattern: str) -> None:
    """Raise `GroupRefusal` for a pattern that is none."""
    try:
        _compile(pattern)
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
            compiled = _compile(pattern)
        except ValueError:
            found[pattern] = frozenset()
        else:
            found[pattern] = frozenset(name for name in names if compiled.fullmatch(name))
    return found


def _compile(pattern: str) -> Any:
    """Raises ValueError with Kafka's word for what is wrong."""
    import re2

    classes = pattern.count("\\p") + pattern.count("\\P")
    if len(pattern) > _MOST_CHARACTERS or classes > _MOST_UNICODE_CLASSES:
        raise ValueError(_TOO_LARGE)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    # Nobody asks for what a group matched, and thousands of groups would make matching very slow.
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace").partition(": ")[0]
        raise ValueError(_DESCRIPTIONS.get(said, said)) from None
