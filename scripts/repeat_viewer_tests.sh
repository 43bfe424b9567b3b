#!/usr/bin/env bash
# Runs the tests of the web page again and again, and stops at the first failure:
#     bash scripts/repeat_viewer_tests.sh [RUNS] [BUSY] [PYTEST_ARGUMENT…]
# RUNS (20) in all, the last BUSY (10) of them with every core kept busy by another process. Without further arguments,
# all of tests/viewer.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-20}
busy=${2:-10}
shift $(($# < 2 ? $# : 2))
if ((busy > runs)); then
    echo "BUSY ($busy) is more than RUNS ($runs)" >&2
    exit 2
fi
python=${PYTHON:-.venv-test/bin/python}

load=()
stop_load() {
    if ((${#load[@]})); then
        kill "${load[@]}" 2>/dev/null || true
        wait "${load[@]}" 2>/dev/null || true
        load=()
    fi
}
trap stop_load EXIT

for ((run = 1; run <= runs; run++)); do
    if ((run > runs - busy && ${#load[@]} == 0)); then
        for ((core = 0; core < $(nproc); core++)); do
            "$python" -c "while True: pass" &
            load+=($!)
        done
    fi
    echo "run $run of $runs, ${#load[@]} busy processes beside it, load $(cut -d' ' -f1 /proc/loadavg)"
    OMP_NUM_THREADS=1 "$python" -m pytest -q -x -p no:cacheprovider "${@:-tests/viewer}"
done
echo "$runs runs without a failure, $busy of them with every core busy"
