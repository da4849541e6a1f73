#!/bin/bash
# Runs unit-test programs and counts their tests.
#
#   tests/units.sh NAME...             runs $BUILD/unit/NAME, each under $RUNNER if that is set
#   tests/units.sh --reaching REGEX    prints the programs whose source, or the list of headers that it includes,
#                                      matches REGEX
#   tests/units.sh --arm64-runner      prints a RUNNER for arm64 programs
#   tests/units.sh --fixed-addresses   prints a RUNNER that turns address randomization off, where allowed
#
# Prints a line per program, the whole output of those that fail, and at last "N passed, N failed". Tests that
# a program skips, and programs named in UNITS_SKIP ("NAME=reason;NAME=reason"), are printed and counted. A
# program fails as a whole when it runs no test, takes longer than UNIT_TIMEOUT seconds, or exits with an error
# that none of its tests explains (a leak, a crash).
set -euo pipefail

case ${1:-} in
--reaching)
    for source in tests/unit/*.c; do
        headers=$(${CC:-cc} -MM -std=c17 -D_GNU_SOURCE -Iinclude -Isrc "$source")
        # Helpers below tests/unit speak for the test that includes them.
        helpers=$(tr ' ' '\n' <<<"$headers" | grep '^tests/unit/.*\.h$' || true)
        # shellcheck disable=SC2086  # one word per helper
        # Not grep -q: it would close the pipe on the writers, which pipefail calls an error.
        if { echo "$headers"; cat "$source" $helpers; } | grep -E "$2" >/dev/null; then basename "$source" .c; fi
    done
    exit
    ;;
--arm64-runner)
    # On an arm64 machine the programs run as they are.
    [ "$(uname -m)" = aarch64 ] || echo "qemu-aarch64 -L /"
    exit
    ;;
--fixed-addresses)
    # The thread sanitizer of GCC 12 cannot place its shadow under some kernels' randomization.
    if setarch -R true 2>/dev/null; then echo "setarch -R"; fi
    exit
    ;;
esac

build=${BUILD:-build}
logs=$build/log
mkdir -p "$logs"

run_one() { # NAME: writes NAME.log, and NAME.count "passed failed skipped seconds"
    local name=$1 log=$logs/$1.log status=0 started=$SECONDS
    local ran passed skipped failed
    # shellcheck disable=SC2086  # RUNNER is a command with arguments
    timeout -k 10 "${UNIT_TIMEOUT:-900}" ${RUNNER:-} "$build/unit/$name" >"$log" 2>&1 </dev/null || status=$?
    ran=$(grep -c '\[ RUN      \]' "$log" || true)
    passed=$(grep -c '\[       OK \]' "$log" || true)
    skipped=$(sed -n 's/.*\[  SKIPPED \] \([A-Za-z_][A-Za-z_0-9]*\)$/\1/p' "$log" | sort -u | wc -l)
    failed=$((ran - passed - skipped))
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        echo "killed after ${UNIT_TIMEOUT:-900} seconds" >>"$log"
    fi
    if [ "$failed" -le 0 ] && { [ "$status" -ne 0 ] || [ "$ran" -eq 0 ]; }; then
        echo "exit status $status after $ran tests" >>"$log"
        failed=1
    fi
    echo "$passed $failed $skipped $((SECONDS - started))" >"$logs/$name.count"
}

# Two at a time on a small machine: more would only make the threaded tests slower.
limit=${JOBS:-$(nproc)}
names=()
total_skipped=0
for name in "$@"; do
    reason=$(tr ';' '\n' <<<"${UNITS_SKIP:-}" | sed -n "s/^ *$name=//p")
    if [ -n "$reason" ]; then
        echo "  skip  $name: $reason"
        total_skipped=$((total_skipped + 1))
        continue
    fi
    names+=("$name")
    rm -f "$logs/$name.count"
    while [ "$(jobs -rp | wc -l)" -ge "$limit" ]; do wait -n || true; done
    run_one "$name" &
done
wait

total_passed=0 total_failed=0
for name in "${names[@]}"; do
    read -r passed failed skipped seconds <"$logs/$name.count"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    verdict=ok
    [ "$failed" -eq 0 ] || verdict=FAIL
    printf '  %-4s  %-28s %4d passed%s%s  %d s\n' "$verdict" "$name" "$passed" \
        "$([ "$failed" -eq 0 ] || echo ", $failed failed")" "$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")" "$seconds"
    [ "$skipped" -eq 0 ] || sed -n 's/.*\[  SKIPPED \] \([A-Za-z_][A-Za-z_0-9]*\)$/          skipped: \1/p' "$logs/$name.log" | sort -u
    [ "$failed" -eq 0 ] || sed 's/^/    | /' "$logs/$name.log"
done
[ "$total_skipped" -eq 0 ] || echo "$total_skipped skipped"
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
