#!/bin/bash
# Fuzzes each NAME for FUZZ_SECONDS with $BUILD/fuzz/fuzz_NAME, starting from tests/fuzz/corpus/NAME. New inputs
# go to $BUILD/corpus/NAME, what crashes to $BUILD/crash-NAME-*: nothing is written into the source tree.
set -euo pipefail

build=${BUILD:-build/fuzz}
seconds=${FUZZ_SECONDS:-60}
mkdir -p "$build/log"
if [ $# -eq 0 ]; then
    echo "tests/fuzz holds no target" >&2
    exit 1
fi

fuzz_one() {
    local name=$1 log=$build/log/$1.log dictionary=()
    mkdir -p "$build/corpus/$name"
    [ ! -e "tests/fuzz/$name.dict" ] || dictionary=("-dict=tests/fuzz/$name.dict")
    if "$build/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/crash-$name-" "${dictionary[@]}" \
        "$build/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 </dev/null; then
        echo "  ok    $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs in $seconds s," \
            "$(find "$build/corpus/$name" -type f | wc -l) inputs kept in $build/corpus/$name"
    else
        echo "  FAIL  $name; the input is kept as $build/crash-$name-*"
        tail -40 "$log" | sed 's/^/    | /'
        return 1
    fi
}

status=0
running=0
for name in "$@"; do
    if [ "$running" -ge "${JOBS:-$(nproc)}" ]; then
        wait -n || status=1
        running=$((running - 1))
    fi
    fuzz_one "$name" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || status=1
    running=$((running - 1))
done
exit $status
