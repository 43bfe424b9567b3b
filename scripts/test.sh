#!/usr/bin/env bash
# Installs geocaps with everything its tests need into a virtual environment of its own and runs linter, type checker
# and tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

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
venv=.venv-test
if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
    # Debian ships Python without venv.
    apt-get update -qq && apt-get install -y -qq python3-venv python3-pip
    "$python" -m venv "$venv"
fi
"$venv/bin/pip" install --quiet --upgrade pip
"$venv/bin/pip" install --quiet --editable ".[test]"

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
# One thread for each worker: two thread pools on the same cores only wait for each other.
OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -n auto "$@"
