#!/bin/bash
# The command in builds without codecs, on a machine that seems to have no C compiler: it works, and
# a store that it could not read all of is refused, with the name of the feature, and left as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Builds the command with these features, as `$work/NAME`.
build() {
    local name=$1
    shift
    cargo build --quiet --locked --package esker-cli "$@"
    cp "$target/debug/esker" "$work/$name"
}

build all
CC=/bin/false CXX=/bin/false build none --no-default-features
CC=/bin/false CXX=/bin/false build lz4 --no-default-features --features lz4

# The command must fail with exit code 2 and name the feature.
refuses() {
    local feature=$1 code=0 said
    shift
    said=$("$@" 2>&1 </dev/null) || code=$?
    if [ "$code" != 2 ] || [[ $said != *"build esker with its feature $feature"* ]]; then
        echo "features: exit code $code of: ${*#"$work"/}: $said" >&2
        exit 1
    fi
}

cd "$work"
for number in $(seq 2000); do
    printf 'key%06d\tone value like any other, number %d\n' "$number" "$number"
done >entries
for codec in none lz4 zstd; do
    ./all load "$codec.esker" entries --compression "$codec" >/dev/null
    ./all compact "$codec.esker" >/dev/null
done
find zstd.esker lz4.esker -type f -exec sha256sum {} + | sort >before

for build in all none lz4; do
    "./$build" dump none.esker | cmp - entries
done
./lz4 dump lz4.esker | cmp - entries
for command in "get zstd.esker key000001" "dump zstd.esker" "check zstd.esker" \
    "put zstd.esker key value" "compact zstd.esker"; do
    # shellcheck disable=SC2086
    refuses zstd ./lz4 $command
    # shellcheck disable=SC2086
    refuses lz4 ./none ${command/zstd.esker/lz4.esker}
done
refuses zstd ./lz4 load new.esker entries --compression zstd
./all backup zstd.esker copy >/dev/null
refuses zstd ./lz4 check copy

# What was refused is what it was, and read as ever.
find zstd.esker lz4.esker -type f -name 'data*' -exec sha256sum {} + | sort |
    while read -r line; do grep -qF "$line" before; done
for codec in lz4 zstd; do
    ./all dump "$codec.esker" | cmp - entries
done
echo "features: builds without codecs work, and refuse what they cannot read"
