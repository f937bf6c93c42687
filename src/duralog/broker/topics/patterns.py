"""Regular expressions of clients: RE2's, as in Kafka, which match in linear time.

Unlike Kafka, this bounds what compiling one may cost: a pattern that is far longer than any list of names, or would
keep the loop busy while all other clients wait, is refused as too large.

RE2 is loaded when the first pattern comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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


def compile_pattern(pattern: str) -> Any:
    """An object with `fullmatch`. Raises ValueError with Kafka's word for what is wrong."""
    import re2

    classes = pattern.count("\\p") + pattern.count("\\P")
    if len(pattern) > _MOST_CHARACTERS or classes > _MOST_UNICODE_CLASSES:
        raise ValueError(_TOO_LARGE)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    # What a group matched is not needed, and thousands of groups would make matching very slow.
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace").partition(": ")[0]
        raise ValueError(_DESCRIPTIONS.get(said, said)) from None
