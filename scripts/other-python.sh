#!/usr/bin/env bash
# Runs the quick unit tests of format, kernels, storage and scanning with another Python than that of .venv, or the tests that
# are named, as tests/spark/source/test_frame_queries.py. Its environment is build/python-VERSION: requirements.txt and pytest, all pinned
# and checked by their hashes, and PySpark of .venv.
# Usage: scripts/other-python.sh VERSION [tests...], as in scripts/other-python.sh 3.13; python3.13 must be on the PATH
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?Name a version, as in scripts/other-python.sh 3.13}
shift
env=build/python-$version
stamp=$env/.installed

tests=(tests/unit/format tests/unit/config tests/unit/kernels tests/unit/columnar tests/unit/storage tests/unit/scanning)
test_packages='fastavro|pytest|pytest-xdist|execnet|pluggy|iniconfig|packaging|hypothesis|sortedcontainers|lz4|zstandard|python-snappy'

if [ $# -gt 0 ]; then
    tests=("$@")
fi
if [ ! -f "$stamp" ] || [ -n "$(find requirements* scripts/other-python.sh -newer "$stamp" -print -quit)" ]; then
    echo "Installing requirements.txt into $env" >&2
    "python$version" -m venv --clear "$env"
    {
        "$env/bin/python" scripts/hashed_requirements.py requirements.txt | grep -vE '^(pyspark|py4j)=='
        "$env/bin/python" scripts/hashed_requirements.py requirements-dev.txt | grep -E "^($test_packages)=="
    } >"$env/hashed.txt"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r "$env/hashed.txt"
    # PySpark is Python alone, so that of .venv serves all versions.
    ln -s "$PWD"/.venv/lib/python*/site-packages/{pyspark,py4j} "$env"/lib/python*/site-packages/
    touch "$stamp"
fi

export PYTHONPATH=$PWD/src
exec "$env/bin/python" -m scripts.run_tests -n "${PROCESSES:-2}" -- -m "not slow" "${tests[@]}"
