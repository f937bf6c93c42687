"""What to do about a write of the sink that was interrupted: complete it, give it up, or say what was committed.

    from duralog.spark.committing import abandon, recover, set_committed

Errors of the sink name the function that helps, with its arguments.
"""

from __future__ import annotations

from duralog.spark.sink.commit import abandon, recover, set_committed

__all__ = ["abandon", "recover", "set_committed"]
