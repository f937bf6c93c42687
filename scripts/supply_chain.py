"""What duralog is built from: a bill of materials, the licences, known advisories. `make supply-chain`.

- `build/sbom.cdx.json`: every pinned requirement of `requirements.txt` with its hashes and licence, in CycloneDX 1.6.
- Each licence must be among those that `ALLOWED` names; another one fails.
- pip-audit compares the versions with the published advisories. Where it cannot reach them, that is said, and it is no
  pass: with `--strict` it fails.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from tempfile import NamedTemporaryFile
from typing import Any

from scripts.hashed_requirements import HASHES, ROOT, hashed, requirements

SBOM = ROOT / "build" / "sbom.cdx.json"
ALLOWED = (
    *("0BSD", "Apache", "BSD", "CC0", "ISC", "MIT", "PSF", "Public Domain", "Python Software Foundation", "Zlib"),
    *("LGPL", "MPL", "Mozilla"),
)
"""Permissive licences, and weak copyleft ones of libraries that users can replace."""
_ALLOWED = re.compile(rf"^\s*(\d-Clause )?({'|'.join(ALLOWED)})(?![a-z])")
KNOWN = {
    # Its classifiers name the GPL for one editor file, which is not part of the installed package.
    "docutils": "Public Domain AND BSD-2-Clause",
    "crc32c": "LGPL-2.1-or-later",
}
"""Licences that the metadata of a package does not say, or says of more than is installed."""


def licence_of(name: str) -> str:
    """What the package says of itself: an expression, a classifier, or the first words of a text."""
    if name in KNOWN:
        return KNOWN[name]
    metadata = importlib.metadata.metadata(name)
    classifiers = [each for each in metadata.get_all("Classifier") or [] if each.startswith("License ::")]
    expression, text = (metadata.get_all(field) or [""] for field in ("License-Expression", "License"))
    found = expression[0] or " AND ".join(each.rpartition(" :: ")[2] for each in classifiers)
    return found or " ".join(text[0].split()[:6])


def is_allowed(licence: str) -> bool:
    """Whether one of the alternatives has only parts that are allowed."""
    return any(
        all(_ALLOWED.search(part) for part in re.split(r"\bAND\b", alternative))
        for alternative in re.split(r"\bOR\b", licence.replace("(", "").replace(")", ""))
    )


def not_allowed(components: list[dict[str, Any]]) -> list[str]:
    """The components whose licence is not among those that are allowed, with what it says."""
    licences = ((each, each["licenses"][0]["license"]["name"]) for each in components)
    return [f"{each['name']} {each['version']}: {name!r}" for each, name in licences if not is_allowed(name)]


def bill_of_materials(components: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "library", "name": "duralog", "version": importlib.metadata.version("duralog")}
        },
        "components": components,
    }


def pinned_components() -> list[dict[str, Any]]:
    hashes = {pin: found for pin, *found in map(str.split, HASHES.read_text().splitlines())}
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "hashes": [{"alg": "SHA-256", "content": each} for each in hashes[f"{name}=={version}"]],
            "licenses": [{"license": {"name": licence_of(name)}}],
        }
        for _, name, version in requirements(ROOT / "requirements.txt")
    ]


def _audit() -> tuple[bool, str]:
    """Whether there is no finding, and what to say. No answer for some packages is not a pass."""
    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(hashed(ROOT / "requirements.txt")))
        file.flush()
        options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        run = subprocess.run(
            [sys.executable, "-m", "pip_audit", *options, "-r", file.name], capture_output=True, text=True, check=False
        )
    try:
        found = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (run.stderr.strip().splitlines() or ["pip-audit gave no answer"])[-1]
        return False, f"audit: NOT DONE: {reason}"
    affected = [f"{each['name']} {each['version']}: {bug['id']}" for each in found for bug in each.get("vulns", ())]
    unknown = sum("skip_reason" in each for each in found)
    if affected:
        return False, "audit: known advisories:\n  " + "\n  ".join(affected)
    if unknown:
        return (
            False,
            f"audit: NOT DONE for {unknown} of {len(found)} packages: the advisories cannot be reached",
        )
    return True, f"audit: {len(found)} packages, no known advisory"


def main() -> int:
    components = pinned_components()
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(json.dumps(bill_of_materials(components), indent=1) + "\n")
    print(f"bill of materials: {len(components)} components, {SBOM.relative_to(ROOT)}")
    strange = not_allowed(components)
    print("licences: " + ("all allowed" if not strange else "not allowed:\n  " + "\n  ".join(strange)))
    is_clean, said = _audit()
    print(said)
    return 1 if strange or "known advisories" in said or ("--strict" in sys.argv and not is_clean) else 0


if __name__ == "__main__":
    sys.exit(main())
