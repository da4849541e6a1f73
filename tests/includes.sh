#!/bin/bash
# Checks the direction of includes and the header guards (CONTRIBUTING.md, "Layers").
#
#   tests/includes.sh [ROOT]         checks the tree at ROOT (default: here); prints each fault
#   tests/includes.sh --self-test    proves on made-up trees that each kind of fault is found
#
# Ends with "N passed, N failed", counting files.
set -euo pipefail

# For each directory what it may include, besides itself and sluice.h. Together they are the order
# base < io < store < text < compute < experts < model < run < cluster with its exceptions: text and compute do
# not see each other, model never sees io, store or text, serve and cli see sluice.h alone.
declare -A ALLOWED=(
    [base]=""
    [io]="base"
    [store]="base io"
    [text]="base io store"
    [compute]="base io store"
    [experts]="base io store text compute"
    [model]="base compute experts"
    [run]="base io store text compute experts model"
    [serve]=""
    [cluster]="base io store text compute experts model run"
    [cli]=""
)

faults=0
fault() { # FILE:LINE, MESSAGE
    echo "$1: $2"
    faults=$((faults + 1))
}

# Prints "LINE SPELLING" for each include of a file, SPELLING with its quotes or brackets.
includes_of() {
    sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*(["<][^">]*[">]).*/\1/;T;=;p' "$1" | paste -d' ' - -
}

check_include() { # FILE LINE SPELLING LAYER
    local at=$1:$2 name=${3:1:-1} layer=$4 target
    if [[ $3 == \<* ]]; then
        if [ "$name" = sluice.h ] || { [[ $name == */* ]] && [ -n "${ALLOWED[${name%%/*}]+set}" ]; }; then
            fault "$at" "<$name> is ours: write it in quotes"
        fi
        return
    fi
    [ "$name" != sluice.h ] || return 0
    if [[ /$name/ == */../* || $name == /* ]]; then
        fault "$at" "\"$name\" leaves the include path: write the path from src/"
        return
    fi
    if [[ $name != */* ]]; then
        # A neighbour in the same directory; only cli/, which is not below src/, spells it without one.
        [ "$layer" = cli ] && [ -e "$(dirname "$1")/$name" ] ||
            fault "$at" "\"$name\" names no directory: write \"$layer/$name\""
        return
    fi
    target=${name%%/*}
    if [ "$target" != "$layer" ] && [[ " ${ALLOWED[$layer]} " != *" $target "* ]]; then
        fault "$at" "$layer/ must not include \"$name\"; it may include: sluice.h, $layer/${ALLOWED[$layer]:+ and ${ALLOWED[$layer]}}"
    fi
}

check_guard() { # FILE: its guard must open the file, and be nobody else's
    local first second guard
    # Comments stand before the guard; the first two directives must be the pair.
    read -r first second < <(sed -nE 's/^[[:space:]]*#[[:space:]]*(ifndef|define)[[:space:]]+([A-Za-z_0-9]+)[[:space:]]*$/\1=\2/p;/^[[:space:]]*#[[:space:]]*include/q' "$1" | head -2 | paste -sd' ' -) || true
    guard=${first#ifndef=}
    if [[ ${first:-} != ifndef=* || ${second:-} != "define=$guard" ]]; then
        fault "$1:1" "does not open with an include guard (#ifndef NAME, #define NAME)"
    elif [ -n "${guards[$guard]:-}" ]; then
        fault "$1:1" "has the include guard $guard of ${guards[$guard]}"
    else
        guards[$guard]=$1
    fi
}

check_tree() { # ROOT: sets `faults` and `files`, and `failed_files`
    local file layer before line spelling
    declare -gA guards=()
    files=0 failed_files=0
    while read -r file; do
        files=$((files + 1))
        before=$faults
        layer=${file#"$1"/}
        layer=${layer#src/}
        layer=${layer%%/*}
        if [[ $file == "$1"/src/* || $file == "$1"/cli/* ]]; then
            if [ -z "${ALLOWED[$layer]+set}" ]; then
                fault "$file:1" "the directory $layer/ is not in the order of tests/includes.sh"
            else
                while read -r line spelling; do
                    check_include "$file" "$line" "$spelling" "$layer"
                done < <(includes_of "$file")
            fi
        fi
        [[ $file != *.h ]] || check_guard "$file"
        [ "$faults" -eq "$before" ] || failed_files=$((failed_files + 1))
    done < <(cd "$1" && find include src cli tests bench -name '*.[ch]' 2>/dev/null | sort | sed "s,^,$1/,")
}

# ---- self-test: a tree with one fault each, and trees without ----

expect() { # WANTED-FAULTS, NAME, then FILE TEXT pairs
    local want=$1 name=$2 root output
    shift 2
    root=$(mktemp -d)
    while [ $# -gt 0 ]; do
        mkdir -p "$root/$(dirname "$1")"
        printf '%b' "$2" >"$root/$1"
        shift 2
    done
    faults=0
    check_tree "$root" >"$root/output"
    output=$(sed "s,$root/,,g" "$root/output")
    rm -rf "$root"
    if [ "$faults" -eq "$want" ]; then
        self_passed=$((self_passed + 1))
    else
        self_failed=$((self_failed + 1))
        echo "self-test \"$name\": $faults faults were found, $want are there: $output"
    fi
}

self_test() {
    self_passed=0 self_failed=0
    expect 0 "downward" src/io/a.c '#include "io/a.h"\n#include "base/x.h"\n#include "sluice.h"\n#include <stdio.h>\n'
    expect 0 "model on experts" src/model/m.c '#include "experts/x.h"\n#include "compute/b.h"\n#include "base/b.h"\n'
    expect 0 "nested directory" src/compute/cpu/r.c '#include "compute/cpu/r.h"\n#include "compute/b.h"\n#include "base/b.h"\n'
    expect 0 "cli neighbour" cli/a.c '#include "a.h"\n#include "sluice.h"\n' cli/a.h '#ifndef A\n#define A\n#endif\n'
    expect 0 "system directory" src/base/a.c '#include <sys/stat.h>\n#include <openssl/evp.h>\n'
    expect 1 "upward" src/base/a.c '#include "io/file.h"\n'
    expect 1 "upward, spaced" src/io/a.c '  #  include   "store/gturbo.h" /* why */\n'
    expect 1 "upward from a nested directory" src/compute/cpu/r.c '#include "experts/x.h"\n'
    expect 1 "upward from a header" src/store/a.h '#ifndef A\n#define A\n#include "run/plan.h"\n#endif\n'
    expect 1 "text sees compute" src/text/a.c '#include "compute/backend.h"\n'
    expect 1 "compute sees text" src/compute/a.c '#include "text/tokenizer.h"\n'
    expect 3 "model sees io, store, text" src/model/a.c '#include "io/file.h"\n#include "store/g.h"\n#include "text/t.h"\n'
    expect 2 "cli sees the inside" cli/a.c '#include "base/err.h"\n#include "run/engine.h"\n'
    expect 1 "serve sees run" src/serve/a.c '#include "run/engine.h"\n'
    expect 1 "angle brackets" src/base/a.c '#include <io/file.h>\n'
    expect 1 "parent directory" src/base/a.c '#include "../io/file.h"\n'
    expect 1 "no directory" src/io/a.c '#include "file.h"\n' src/io/file.h '#ifndef F\n#define F\n#endif\n'
    expect 1 "unknown directory" src/extra/a.c '#include "base/err.h"\n'
    expect 1 "no guard" src/base/a.h 'int a;\n'
    expect 1 "guard after an include" src/base/a.h '#include <stdio.h>\n#ifndef A\n#define A\n#endif\n'
    expect 1 "guard mistyped" src/base/a.h '#ifndef A_H\n#define A_HH\n#endif\n'
    expect 1 "guard used twice" src/base/a.h '#ifndef A\n#define A\n#endif\n' src/io/b.h '#ifndef A\n#define A\n#endif\n'
    echo "$self_passed passed, $self_failed failed"
    [ "$self_failed" -eq 0 ]
}

if [ "${1:-}" = --self-test ]; then
    self_test
    exit
fi
check_tree "${1:-.}"
echo "$((files - failed_files)) passed, $failed_files failed"
[ "$faults" -eq 0 ] && [ "$files" -gt 0 ]
