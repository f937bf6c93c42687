"""The theme of the pages: one stylesheet, one script, one icon, all served from this package.

Colours are variables of the stylesheet (`assets/console.css`), once for light and once for dark. Charts, which have no
stylesheet, use the colours below, which are legible on both. `assets/console.js` keeps the choice between light, dark
and the system's in the browser, before the first paint, and handles the keys.
"""

from __future__ import annotations

from pathlib import Path

from duralog import __version__

ASSETS = Path(__file__).parent / "assets"
ASSETS_PATH = f"/assets/{__version__}"

ACCENT = "#3b82c4"
SECOND = "#c9862b"
CLEAN = "#4a9d7c"
BAD = "#d1495b"
INK_ON_BOTH = "#7d8794"
LINE_ON_BOTH = "rgba(125, 135, 148, 0.25)"

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
    '<rect x="2" y="4" width="9" height="4.4" rx="1.2" fill="#4a9d7c"/>'
    '<rect x="2" y="9.8" width="15" height="4.4" rx="1.2" fill="#3b82c4"/>'
    '<rect x="2" y="15.6" width="20" height="4.4" rx="1.2" fill="#c9862b"/></svg>'
)
"""Segments of a log: one that was compacted, one closed, one that grows."""


def head_html() -> str:
    """The head of every page. The script is small and not deferred: it picks light or dark before the first paint."""
    stamp = int(max(file.stat().st_mtime for file in ASSETS.iterdir()))
    sheets = "".join(
        f'<link rel="stylesheet" href="{ASSETS_PATH}/{sheet.name}?{stamp}">' for sheet in sorted(ASSETS.glob("*.css"))
    )
    return f'<script src="{ASSETS_PATH}/console.js?{stamp}"></script>{sheets}<meta name="robots" content="noindex">'
