"""Tests that drive a program of the machine: skipped where it is missing, with the reason; with `CI=true` they fail."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(program: str) -> pytest.MarkDecorator:
    is_missing = shutil.which(program) is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(is_missing, reason=f"there is no {program}: scripts/test-programs.sh installs it")
