#!/bin/sh
# Run the command-line cases: tests/cli/run.sh [PATTERN...], from the repository root.
#
# $SLUICE is the program (default build/sluice). Without patterns every case in tests/cli/cases runs and then
# the walk over the flag tables; with them, the cases whose name contains one of them.
#
# A case is a text file of sections, each started by a line of its own:
#   --- needs demo        the demo checkpoint is installed first, and $DEMO is its install
#   --- command           a shell script; $SLUICE, $TMP (a directory of its own), $DEMO, $HERE (tests/cli)
#   --- exit N            the expected exit code (default 0)
#   --- stdout, --- stderr   expected lines, see match.awk; a missing section expects nothing
set -u
HERE=tests/cli
SLUICE=${SLUICE:-build/sluice}
case $SLUICE in /*) ;; *) SLUICE=$PWD/$SLUICE ;; esac
BASE=$(mktemp -d "${TMPDIR:-/tmp}/sluice-cli.XXXXXX") || exit 1
DEMO=$BASE/demo.gturbo
# Neither the tester's history nor language may matter.
XDG_STATE_HOME=$BASE/state HOME=$BASE LC_ALL=C
export SLUICE DEMO HERE XDG_STATE_HOME HOME LC_ALL
unset XDG_CONFIG_HOME
passed=0
failed=0
trap 'rm -rf "$BASE"' EXIT
trap 'exit 130' INT TERM

if [ ! -x "$SLUICE" ]; then
    echo "tests/cli/run.sh: there is no program $SLUICE; build it, or set SLUICE" >&2
    exit 1
fi

ok() {
    passed=$((passed + 1))
    echo "ok    $1"
}

not_ok() {
    failed=$((failed + 1))
    echo "FAIL  $1"
}

install_demo() {
    [ -e "$DEMO/manifest.json" ] && return 0
    if ! "$SLUICE" install demo/dictionary-moe --output "$DEMO" --quiet </dev/null >"$BASE/install.log" 2>&1; then
        echo "    the demo checkpoint could not be installed:"
        sed 's/^/      /' "$BASE/install.log"
        return 1
    fi
}

run_case() {
    file=$1
    name=$(basename "$file" .case)
    TMP=$BASE/$name
    export TMP
    mkdir "$TMP"
    why=$BASE/why
    : >"$why"
    if grep -q '^--- needs demo$' "$file" && ! install_demo >"$why"; then
        not_ok "$name"
        cat "$why"
        return
    fi
    awk '/^--- /{ inside = ($2 == "command"); next } inside' "$file" >"$BASE/command"
    want=$(sed -n 's/^--- exit //p' "$file")
    timeout 300 sh "$BASE/command" </dev/null >"$BASE/stdout" 2>"$BASE/stderr"
    got=$?
    [ "$got" = "${want:-0}" ] || echo "    exit code ${want:-0} expected, got $got" >>"$why"
    for section in stdout stderr; do
        awk -v section=$section -f $HERE/match.awk "$file" "$BASE/$section" >>"$why"
    done
    if [ -s "$why" ]; then
        not_ok "$name"
        cat "$why"
        [ "$got" = "${want:-0}" ] || sed 's/^/      stderr: /' "$BASE/stderr" | head -5
    else
        ok "$name"
        rm -rf "$TMP"
    fi
}

selected() {
    [ $# -eq 1 ] && return 0
    chosen=$1
    shift
    for pattern in "$@"; do
        case $chosen in *"$pattern"*) return 0 ;; esac
    done
    return 1
}

for file in $HERE/cases/*.case; do
    if selected "$(basename "$file" .case)" "$@"; then
        run_case "$file"
    fi
done
if selected walk "$@"; then
    . $HERE/walk.sh
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
