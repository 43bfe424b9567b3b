#!/usr/bin/env bash
# The linter, the type checker and the tests, in a virtual environment of their own.
#   bash scripts/test.sh           everything, as CI does
#   bash scripts/test.sh --quick   before each commit: the tests of geometry, files, model and commands that are not slow
# Other arguments go to pytest: bash scripts/test.sh tests/model -x
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
if [ "${1:-}" = --quick ]; then
    quick=true
    shift
fi

venv=.venv-test
installed=$venv/installed.toml
# Installed again only where pyproject.toml has changed since: the package itself is used from where it lies.
if ! cmp -s pyproject.toml "$installed"; then
    # Open3D, one of the baselines, needs these of the system.
    missing=()
    for package in libusb-1.0-0 libgl1 libgomp1; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    # The tests of the web page need a browser.
    if ! command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null; then
        missing+=(chromium)
    fi
    if [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq "${missing[@]}"
    fi
    python=${PYTHON:-python3}
    if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
        # Debian ships Python without venv.
        apt-get update -qq && apt-get install -y -qq python3-venv python3-pip
        "$python" -m venv "$venv"
    fi
    "$venv/bin/pip" install --quiet --upgrade pip
    "$venv/bin/pip" install --quiet --editable ".[test]"
    cp pyproject.toml "$installed"
fi

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
# One thread for each worker: two thread pools on the same cores only wait for each other. Whole files to a worker, so
# that what the tests of a file share is made once.
pytest=("$venv/bin/python" -m pytest -n auto --dist loadfile --no-loadscope-reorder)
export OMP_NUM_THREADS=1
if $quick; then
    [ $# -gt 0 ] || set -- tests/test_architecture.py tests/geometry tests/io tests/model tests/cli
    "${pytest[@]}" -m "not slow" "$@"
else
    "${pytest[@]}" "$@"
fi
