"""A worker that Spark has hung up on ends without a traceback; other errors are printed as ever."""

from __future__ import annotations

import traceback

import pytest

from duralog.spark.hung_up import end_quietly_when_hung_up


@pytest.mark.parametrize(("error", "is_printed"), [(BrokenPipeError(32, "Broken pipe"), False), (OSError(5), True)])
def test_only_a_closed_connection_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, is_printed: bool
) -> None:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)
    end_quietly_when_hung_up()
    end_quietly_when_hung_up()
    try:
        raise error
    except OSError:
        traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is is_printed
