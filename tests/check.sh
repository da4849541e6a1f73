#!/bin/bash
# Runs the named parts of the checks one after the other, all of them even when one fails, and sums what they
# count. Each part's output ends with "N passed, N failed"; a part without that line, or one that exits with an
# error though it counts no failure, counts as one failure. The last line is the sum.
#
#   BUILD=build tests/check.sh PART...      parts: includes unit replay cli
set -euo pipefail

build=${BUILD:-build}
make=${MAKE:-make}

part_includes() { tests/includes.sh --self-test && tests/includes.sh; }
part_unit() { $make --no-print-directory BUILD="$build" unit; }
part_replay() { $make --no-print-directory BUILD="$build" replay; }
part_cli() {
    if [ ! -x tests/cli/run.sh ]; then
        echo "tests/cli/run.sh is missing: the command line cannot be checked"
        return 1
    fi
    SLUICE="$PWD/$build/sluice" tests/cli/run.sh </dev/null
}

mkdir -p "$build/log"
total_passed=0 total_failed=0 summary=
for part in "$@"; do
    echo "== $part"
    log=$build/log/check-$part.log
    status=0
    started=$SECONDS
    { "part_$part" 2>&1 || echo "exit status $?"; } | tee "$log"
    tail -1 "$log" | grep -q '^exit status' && status=1
    counts=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$log" |
        awk '{ p += $1; f += $2 } END { if (NR) print p, f }')
    read -r passed failed <<<"${counts:-0 1}"
    [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    summary+=$(printf '  %-10s %5d passed, %d failed  %4d s' "$part" "$passed" "$failed" $((SECONDS - started)))$'\n'
done
printf '== summary\n%s' "$summary"
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" -eq 0 ]
