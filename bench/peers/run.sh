#!/bin/bash
# Runs llama-bench on a GGUF of make_gguf.py: README.md beside this says how both are made.
#
#   bench/peers/run.sh LLAMA_BENCH MODEL.gguf [LIMIT_BYTES]
#
# THREADS (default: the processors), PROMPT (512), GENERATE (32; under a limit 4), REPETITIONS (3; under a limit 1).
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bench=$1 model=$2 limit=${3:-}
threads=${THREADS:-$(nproc)}

if [ -z "$limit" ]; then
    for repack in 1 0; do
        "$bench" -m "$model" -t "$threads" -p "${PROMPT:-512}" -n "${GENERATE:-32}" -r "${REPETITIONS:-3}" \
            --repack "$repack"
    done
    exit
fi
# The pages of the file alone; what else is cached belongs to others.
dd if="$model" iflag=nocache count=0 status=none
"$(dirname "$0")/../cgroup.sh" --limit "$limit" \
    "$bench" -m "$model" -t "$threads" -p 0 -n "${GENERATE:-4}" -r "${REPETITIONS:-1}" --repack 0
