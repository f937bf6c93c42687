#!/usr/bin/env bash
# Runs the tests that every version of Spark must pass with the oldest one, or those that are named.
# Its environment is build/oldest-spark: the packages of .venv, with the Spark of requirements-oldest-spark.txt before them.
# Usage: scripts/oldest-spark.sh [tests...]; .venv must be there, with requirements-dev.txt
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=requirements-oldest-spark.txt
env=build/oldest-spark
stamp=$env/.installed

# Frames, views and cached frames in several queries, streams, writes and jobs.
tests=(
    tests/spark/test_executor.py
    tests/spark/test_frame_queries.py
    tests/spark/test_frame_snapshot.py
    tests/spark/test_job_compact.py
    tests/spark/test_job_snapshot.py
    tests/spark/test_job_verify.py
    tests/spark/test_register.py
    tests/spark/test_sink_batch.py
    tests/spark/test_sink_stream.py
    tests/spark/test_source_batch.py
    tests/spark/test_source_columns.py
    tests/spark/test_source_damage.py
    tests/spark/test_stream_query.py
    tests/spark/test_versions.py
)

if [ $# -gt 0 ]; then
    tests=("$@")
fi
if [ ! -f "$stamp" ] || [ -n "$(find requirements* scripts/oldest-spark.sh -newer "$stamp" -print -quit)" ]; then
    echo "Installing $requirements into $env" >&2
    .venv/bin/python -m venv --clear --without-pip "$env"
    packages='import site; print(site.getsitepackages()[0])'
    others=$(.venv/bin/python -c "$packages")
    # The packages of an environment come before those that its .pth files add.
    echo "import site; site.addsitedir('$others')" >"$("$env/bin/python" -c "$packages")/of-venv.pth"
    .venv/bin/python scripts/hashed_requirements.py "$requirements" >"$env/hashed.txt"
    .venv/bin/python -m pip --python "$env/bin/python" install --quiet --disable-pip-version-check \
        --ignore-installed --no-deps --require-hashes -r "$env/hashed.txt"
    touch "$stamp"
fi

# Python finds sockets that PySpark 4.0 itself has left open.
export PYTEST_ADDOPTS="-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning"
exec "$env/bin/python" -m scripts.run_tests -n "${PROCESSES:-2}" "${tests[@]}"
