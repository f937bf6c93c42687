#!/usr/bin/env bash
# Checks for Chromium, and installs Debian's where it may.
# Without it, it says what to do and goes on: the tests of the console say so again, or fail with CI=true.
set -euo pipefail

has_chromium() {
    command -v chromium || command -v chromium-browser || command -v google-chrome
} >/dev/null

if has_chromium; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Debian's Chromium" >&2
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null || true
fi
if ! has_chromium; then
    echo "Chromium is not here. The tests of the console in a browser need it." >&2
    echo "On Debian: sudo apt-get install chromium" >&2
fi
