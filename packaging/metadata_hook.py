"""The project page of a release: the README with links that work on a package index, and the project's addresses.

`DURALOG_REPOSITORY` is the address of the repository, such as https://github.com/example/duralog. Links between files
of the repository become links to it. Without the variable, the README is taken as it is: a build from a clone does not
know where the repository is published.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|mailto:|#)([^)\s]+)\)")


class ProjectPageHook(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("DURALOG_REPOSITORY", "").rstrip("/")
        if repository:
            if not repository.startswith("https://"):
                raise SystemExit(f"DURALOG_REPOSITORY={repository} is not an address: give https://HOST/OWNER/NAME")
            text = _with_absolute_links(text, repository)
            metadata["urls"] = {
                "Homepage": repository,
                "Documentation": f"{repository}/blob/HEAD/docs/index.md",
                "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{repository}/issues",
                "Source": repository,
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _with_absolute_links(text: str, repository: str) -> str:
    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}{repository}/{kind}/HEAD/{found[2]})"

    return _LINK.sub(absolute, text)
