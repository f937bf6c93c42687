"""A worker that Spark has hung up on ends without a traceback; other errors are printed as ever."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from duralog.spark.hung_up import end_quietly_when_hung_up


def raise_in(error: OSError, *modules: str) -> None:
    """Through functions of these modules, the first one calls the next."""
    call: Any = None
    for module in reversed(modules):
        scope = {"__name__": module, "error": error, "call": call}
        exec("def f():\n    if call is None:\n        raise error\n    call()", scope)
        call = scope["f"]
    call()


@pytest.mark.parametrize(
    ("error", "modules", "is_printed"),
    [
        (BrokenPipeError(32, "Broken pipe"), ["pyspark.daemon"], False),
        (BrokenPipeError(32, "Broken pipe"), ["pyspark.daemon", "pyspark.serializers", "pyarrow.lib", "socket"], False),
        (BrokenPipeError(32, "Broken pipe"), ["pyspark.daemon", "pyspark.worker", "users_own", "socket"], True),
        (OSError(5), ["pyspark.daemon"], True),
    ],
)
def test_only_a_closed_connection_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    modules: list[str],
    is_printed: bool,
) -> None:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)
    end_quietly_when_hung_up()
    end_quietly_when_hung_up()
    try:
        raise_in(error, *modules)
    except OSError:
        traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is is_printed
