#!/usr/bin/env bash
# Checks for the programs that some tests drive, and installs Debian's where it may: a browser, kcat, shells, systemd's checks.
# Without them it says what to do and goes on: the tests that need one say so again, or fail with CI=true.
set -euo pipefail

missing=()
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing+=(chromium fonts-dejavu-core)
command -v kcat >/dev/null || missing+=(kcat)
command -v zsh >/dev/null || missing+=(zsh)
command -v fish >/dev/null || missing+=(fish)
command -v systemd-analyze >/dev/null || missing+=(systemd)
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing for the tests: ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    if { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null; then
        exit 0
    fi
fi
echo "Some tests need what is not here. On Debian: sudo apt-get install ${missing[*]}" >&2
