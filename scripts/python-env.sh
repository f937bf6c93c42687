#!/usr/bin/env bash
# Makes .venv with the pinned requirements of the given file, each checked by its hash, and this package in it.
# Usage: scripts/python-env.sh requirements.txt | requirements-dev.txt | requirements-bench.txt
# Nothing is done when the last run of the same file is still up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1
stamp=".venv/.installed-${requirements%.txt}"

newer_than_stamp() {
    [ ! -f "$stamp" ] || [ -n "$(find requirements* pyproject.toml scripts/python-env.sh -newer "$stamp" -print -quit)" ]
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "duralog needs Python 3.11 or newer. Install it, or name it: make PYTHON=/path/to/python3 ..." >&2
    exit 1
}

make_venv() {
    local python
    python=$(find_python)
    if ! "$python" -m venv .venv 2>/dev/null; then
        # Debian keeps the venv module in a package of its own.
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
            "$python" -m venv .venv
        else
            echo "Python's venv module is missing. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2
            exit 1
        fi
    fi
}

[ -x .venv/bin/python ] || make_venv
if newer_than_stamp; then
    echo "Installing $requirements into .venv" >&2
    hashed=$(mktemp)
    trap 'rm -f "$hashed"' EXIT
    .venv/bin/python scripts/hashed_requirements.py "$requirements" > "$hashed"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$hashed"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
    touch "$stamp"
fi
# The kernels' machine code, as wheels have it. Without a C compiler, numba compiles them at their first use.
.venv/bin/python -m duralog.kernels.compilation || true
