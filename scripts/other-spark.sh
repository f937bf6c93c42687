#!/usr/bin/env bash
# Runs the tests that every version of Spark must pass with another version than that of requirements.txt.
# Its environment is build/spark-VERSION: the packages of .venv, with the Spark of requirements-spark-VERSION.txt before them.
# Usage: scripts/other-spark.sh VERSION [tests...], as in scripts/other-spark.sh 4.0; .venv must be there, with requirements-dev.txt
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?Name a version: $(echo requirements-spark-*.txt)}
shift
requirements=requirements-spark-$version.txt
env=build/spark-$version
stamp=$env/.installed

# Frames, views and cached frames in several queries, typed payloads, clusters, streams, writes, jobs, lake tables, killed drivers,
# Spark Connect and a stand-alone cluster.
tests=(
    tests/spark/cluster/test_batch.py
    tests/spark/cluster/test_stream.py
    tests/spark/session/test_connect.py
    tests/spark/session/test_executor.py
    tests/spark/session/test_standalone_cluster.py
    tests/spark/source/test_frame_queries.py
    tests/spark/source/test_frame_snapshot.py
    tests/spark/jobs/test_compact.py
    tests/spark/jobs/test_export.py
    tests/spark/jobs/test_snapshot.py
    tests/spark/jobs/test_verify.py
    tests/spark/source/test_lost_transaction_index.py
    tests/spark/session/test_register.py
    tests/spark/session/test_threads.py
    tests/spark/sink/test_batch.py
    tests/spark/sink/test_killed_drivers.py
    tests/spark/sink/test_stream.py
    tests/spark/source/test_batch.py
    tests/spark/source/test_columns.py
    tests/spark/source/test_damage.py
    tests/spark/source/test_stream_query.py
    tests/spark/source/test_typed_payloads.py
    tests/spark/session/test_versions.py
)

if [ ! -f "$requirements" ]; then
    echo "There is no $requirements. Versions with such a file: $(echo requirements-spark-*.txt)" >&2
    exit 2
fi
if [ $# -gt 0 ]; then
    tests=("$@")
fi
if [ ! -f "$stamp" ] || [ -n "$(find requirements* scripts/other-spark.sh -newer "$stamp" -print -quit)" ]; then
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
