"""docs/configs.md says what the declarations say."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import DOCS


def test_the_description_of_the_configs_is_fresh():
    checked = subprocess.run(
        [sys.executable, str(DOCS / "render_configs.py"), "--check"], capture_output=True, encoding="utf-8", check=False
    )
    assert checked.returncode == 0, checked.stderr
