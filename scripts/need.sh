#!/bin/bash
# Checks that the tools of a build are there: Rust and a linker.
#
#   scripts/need.sh             Rust as the laboratory and the tests need it
#   scripts/need.sh packages    Rust as the published packages need it, which may be older
#
# As root on a machine with apt it installs the linker; the rest it can only name.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

fail() {
    echo "need: $*" >&2
    exit 1
}

if ! command -v cc >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev
    else
        fail "no linker: install gcc (Debian: apt-get install gcc libc6-dev)"
    fi
fi

case ${1:-tests} in
    packages) manifest=Cargo.toml what="a build of the packages" ;;
    tests) manifest=lab/experiments/Cargo.toml what="a test or the laboratory" ;;
    *) fail "what is $1? packages or tests" ;;
esac
wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$manifest")
command -v cargo >/dev/null || fail "no cargo: install Rust $wanted (https://rustup.rs)"
found=$(rustc --version | cut -d' ' -f2)
oldest=$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)
[ "$oldest" = "$wanted" ] ||
    fail "Rust $found is too old: $what needs $wanted or later (rustup update)"
