#!/bin/bash
# Runs a command in a memory cgroup of its own and says what was charged to it: anonymous memory, page cache and
# kernel memory together, as the kernel's out-of-memory killer would see it.
#
#   bench/cgroup.sh [--limit BYTES] COMMAND [ARGUMENTS]
#
# The last line on standard error is "cgroup: peak BYTES limit BYTES|none reclaims N kills N", where reclaims
# counts how often the limit was reached and pages had to go. Exits with the command's status; with 77, and a
# sentence, where no cgroup can be made (cgroup v1 or v2, and root or a delegated group, are needed).
set -uo pipefail

limit=
if [ "${1:-}" = --limit ]; then
    limit=$2
    shift 2
fi
[ $# -gt 0 ] || { echo "cgroup.sh: no command was given" >&2; exit 2; }

skip() {
    echo "cgroup.sh: skipped: $1" >&2
    exit 77
}

# The directory of this process's memory cgroup, and which names its files have.
if path=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) && [ -n "$path" ]; then
    version=1 base=/sys/fs/cgroup/memory
    peak=memory.max_usage_in_bytes max=memory.limit_in_bytes
else
    version=2 base=/sys/fs/cgroup
    path=$(sed -n 's/^0:://p' /proc/self/cgroup)
    peak=memory.peak max=memory.max
fi
parent=$base$path
[ -d "$parent" ] || parent=$base
[ -e "$parent/cgroup.procs" ] || skip "there is no memory cgroup in $parent"
group=$parent/sluice-bench.$$
mkdir "$group" 2>/dev/null || skip "a cgroup cannot be made in $parent"
trap 'rmdir "$group" 2>/dev/null' EXIT
[ -e "$group/$peak" ] || skip "$group has no $peak"
if [ -n "$limit" ]; then
    echo "$limit" >"$group/$max" 2>/dev/null || skip "$max cannot be set"
    # Swapping would hide what does not fit.
    [ $version = 2 ] && echo 0 >"$group/memory.swap.max" 2>/dev/null
    [ $version = 1 ] && [ -e "$group/memory.memsw.limit_in_bytes" ] &&
        echo "$limit" >"$group/memory.memsw.limit_in_bytes" 2>/dev/null
fi

(
    echo "$BASHPID" >"$group/cgroup.procs" || exit 77
    exec "$@"
)
status=$?

if [ $version = 1 ]; then
    reclaims=$(cat "$group/memory.failcnt")
    kills=$(sed -n 's/^oom_kill //p' "$group/memory.oom_control")
else
    reclaims=$(sed -n 's/^max //p' "$group/memory.events")
    kills=$(sed -n 's/^oom_kill //p' "$group/memory.events")
fi
echo "cgroup: peak $(cat "$group/$peak") limit ${limit:-none} reclaims ${reclaims:-0} kills ${kills:-0}" >&2
exit $status
