#!/bin/bash
# Runs fuzz targets over their kept inputs: for each NAME, $BUILD/replay/NAME gets every file of
# tests/fuzz/corpus/NAME. A target without a corpus fails. Ends with "N passed, N failed", counting targets.
set -euo pipefail

build=${BUILD:-build}
mkdir -p "$build/log"
passed=0 failed=0
for name in "$@"; do
    log=$build/log/replay-$name.log
    mapfile -t inputs < <(find "tests/fuzz/corpus/$name" -type f 2>/dev/null | sort)
    if [ ${#inputs[@]} -eq 0 ]; then
        echo "  FAIL  $name: tests/fuzz/corpus/$name holds no input"
        failed=$((failed + 1))
    # shellcheck disable=SC2086  # RUNNER is a command with arguments
    elif timeout -k 10 "${UNIT_TIMEOUT:-900}" ${RUNNER:-} "$build/replay/$name" "${inputs[@]}" >"$log" 2>&1 </dev/null; then
        echo "  ok    $name: ${#inputs[@]} inputs"
        passed=$((passed + 1))
    else
        echo "  FAIL  $name; the last input named below did it"
        tail -40 "$log" | sed 's/^/    | /'
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
