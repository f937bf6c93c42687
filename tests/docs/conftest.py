"""The scripts beside the pages can be imported by the tests of the pages."""

from __future__ import annotations

import sys

from tests.support.places import DOCS

sys.path.insert(0, str(DOCS))
