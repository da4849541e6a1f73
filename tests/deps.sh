#!/bin/bash
# Installs the Debian packages that a purpose needs and that are missing.
#
#   tests/deps.sh [--check] PURPOSE...     purposes: build test nginx lint fuzz valgrind arm64
#
# --check installs nothing: it says what is missing and fails. Installing needs root or sudo without a
# password; where that or apt-get is not to be had, one sentence lists what to install by hand.
set -euo pipefail

# purpose, probe, package. A probe is cmd:NAME (a command), pc:NAME (pkg-config), pc-arm64:NAME (the same in the
# arm64 directories), file:PATH, or cc:FILE (a file that the C compiler finds).
NEEDS='
build     cmd:make                                make
build     cmd:cc                                  gcc
build     cc:crt1.o                               libc6-dev
build     cmd:pkg-config                          pkg-config
build     pc:jansson                              libjansson-dev
build     pc:libcrypto                            libssl-dev
build     pc:libpcre2-8                           libpcre2-dev
build     pc:libutf8proc                          libutf8proc-dev
build     pc:liburing                             liburing-dev
build     pc:hwloc                                libhwloc-dev
build     pc:libedit                              libedit-dev
build     pc:libcurl                              libcurl4-openssl-dev
test      pc:cmocka                               libcmocka-dev
nginx     file:/usr/sbin/nginx                    nginx-light
lint      cmd:clang-format                        clang-format
lint      cmd:clang-tidy                          clang-tidy
fuzz      cmd:clang                               clang
fuzz      clang:libclang_rt.fuzzer-x86_64.a       libclang-rt-dev
valgrind  cmd:valgrind                            valgrind
arm64     cmd:aarch64-linux-gnu-gcc               gcc-aarch64-linux-gnu
arm64     cmd:qemu-aarch64                        qemu-user
arm64     file:/lib/ld-linux-aarch64.so.1         libc6:arm64
arm64     pc-arm64:jansson                        libjansson-dev:arm64
arm64     pc-arm64:libcrypto                      libssl-dev:arm64
arm64     pc-arm64:libpcre2-8                     libpcre2-dev:arm64
arm64     pc-arm64:libutf8proc                    libutf8proc-dev:arm64
arm64     pc-arm64:liburing                       liburing-dev:arm64
arm64     pc-arm64:hwloc                          libhwloc-dev:arm64
arm64     pc-arm64:libedit                        libedit-dev:arm64
arm64     pc-arm64:libcurl                        libcurl4-openssl-dev:arm64
arm64     pc-arm64:cmocka                         libcmocka-dev:arm64
'

# True when the compiler $1 finds its own file $2: it answers with a path, otherwise with the bare name.
compiler_has() {
    local path
    path=$("$1" -print-file-name="$2" 2>/dev/null) && [ -n "$path" ] && [ "$path" != "$2" ] && [ -e "$path" ]
}

present() {
    local kind=${1%%:*} name=${1#*:}
    case $kind in
    cmd) command -v "$name" >/dev/null ;;
    pc) pkg-config --exists "$name" 2>/dev/null ;;
    pc-arm64) PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig pkg-config --exists "$name" 2>/dev/null ;;
    file) [ -e "$name" ] ;;
    cc | clang) compiler_has "$kind" "$name" ;;
    *) echo "deps.sh: unknown probe $1" >&2; exit 2 ;;
    esac
}

check_only=false
if [ "${1:-}" = --check ]; then
    check_only=true
    shift
fi
missing=()
for purpose in "$@"; do
    known=false
    while read -r group probe package; do
        [ "$group" = "$purpose" ] || continue
        known=true
        # The caller's own compiler serves as well as cc.
        [ "$probe" = cmd:cc ] && command -v "${CC:-cc}" >/dev/null && continue
        present "$probe" || missing+=("$package")
    done <<<"$NEEDS"
    $known || { echo "deps.sh: unknown purpose \"$purpose\"" >&2; exit 2; }
done
[ ${#missing[@]} -gt 0 ] || exit 0

if $check_only; then
    echo "Missing: ${missing[*]}. Install them with your package manager, or on Debian run \"make deps\"." >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root=(sudo -n)
else
    echo "Missing: ${missing[*]}. This needs root: run \"apt-get install ${missing[*]}\" as root, then try again." >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "Missing (by their Debian names): ${missing[*]}. Install them with your package manager, then try again." >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing ${missing[*]}"
if [[ ${missing[*]} == *:arm64* ]] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    "${root[@]}" dpkg --add-architecture arm64
fi
apt() {
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" >>"$log" 2>&1 </dev/null
}
# gcc for arm64 and the C library for arm64 come in the same call, so apt settles their versions together.
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
    tail -20 "$log" >&2
    echo "apt-get could not install ${missing[*]}; its last words are above." >&2
    exit 1
fi
