#!/bin/bash
# Fetches the RocksDB library that the peer `rocksdb` is measured with, and prints the environment
# with which a program is built and run with it.
#
#   eval "$(scripts/rocksdb-peer.sh)"
#   cargo build --release --package esker-cli --features peers
#
# RocksDB's own package for Java contains the library with its C interface; its build takes hours
# on a small machine. Needs Maven, Python 3 and libclang (Debian: apt-get install maven python3
# libclang1-14 libclang-common-14-dev). The library is left in the target folder.
set -euo pipefail
cd "$(dirname "$0")/.."

version=10.10.1
jar=rocksdbjni-$version-linux64.jar
jar_sha256=fda4a26cd4ea229636c5379ed41d827ce119a99c404fab94d9f863783c9ccb18
member=librocksdbjni-linux64.so
library=librocksdb-$version.so
library_sha256=14750307fe12f75bd400ed8156dfb737a7a7229ffe4c8b8bbe218e754dbe14b2
mkdir -p "${CARGO_TARGET_DIR:-target}"
folder=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/rocksdb-$version

fail() {
    echo "rocksdb-peer: $*" >&2
    exit 1
}

is_intact() {
    echo "$2  $folder/$1" | sha256sum --check --status 2>/dev/null
}

fetch() {
    command -v mvn >/dev/null || fail "no mvn: install Maven (Debian: apt-get install maven)"
    command -v python3 >/dev/null || fail "no python3: install it (Debian: apt-get install python3)"
    mvn --quiet --batch-mode dependency:copy -DoutputDirectory="$folder" \
        -Dartifact="org.rocksdb:rocksdbjni:$version:jar:linux64" >&2 ||
        fail "Maven does not bring org.rocksdb:rocksdbjni:$version (its message is above)"
    is_intact "$jar" "$jar_sha256" ||
        fail "$folder/$jar has another SHA-256 than $jar_sha256: remove it and try again"
    python3 -m zipfile --extract "$folder/$jar" "$folder/unpacked"
    mv "$folder/unpacked/$member" "$folder/$library"
    rm -r "$folder/unpacked" "${folder:?}/$jar"
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "the library is for Linux on x86-64 alone"
mkdir -p "$folder"
is_intact "$library" "$library_sha256" || fetch
is_intact "$library" "$library_sha256" ||
    fail "$folder/$library has another SHA-256 than $library_sha256: remove it and try again"
# A script of the linker: a program looks for the file of this version when it starts, and never
# for a `librocksdb.so` of the system.
echo "INPUT(-l:$library)" >"$folder/librocksdb.so"

printf 'export ROCKSDB_LIB_DIR=%q\n' "$folder"
printf 'export LD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n' "$folder"
