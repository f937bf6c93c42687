"""docs/scale.md says what the benchmarks measured."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import DOCS


def test_the_page_about_scale_is_fresh() -> None:
    checked = subprocess.run(
        [sys.executable, str(DOCS / "render_scale.py"), "--check"], capture_output=True, encoding="utf-8", check=False
    )
    assert checked.returncode == 0, checked.stderr
