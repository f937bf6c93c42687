#!/usr/bin/env bash
# Checks for Java 17 or newer, and installs Debian's headless runtime where it may.
# Without Java it says what to do and goes on: what needs Java says so again when it is used.
set -euo pipefail

java_major() {
    java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

major=$(command -v java >/dev/null && java_major || true)
if [ "${major:-0}" -ge 17 ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Debian's headless Java runtime" >&2
    apt-get update -qq && apt-get install -y -qq default-jre-headless >/dev/null
    major=$(java_major)
fi
if [ "${major:-0}" -lt 17 ]; then
    echo "Java 17 or newer is not here (found: ${major:-none}). Spark and the tests against Apache Kafka need it." >&2
    echo "On Debian and Ubuntu: sudo apt-get install default-jre-headless" >&2
fi
