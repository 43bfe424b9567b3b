#!/usr/bin/env bash
# Installs geocaps with everything its tests need into a virtual environment of its own and runs linter, type checker
# and tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

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
"$venv/bin/python" -m pytest "$@"
