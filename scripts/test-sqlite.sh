#!/bin/bash
# SQLite's own test suite over the extension: the scripts that it runs with journals in memory, and
# its test of several processes, mptest.
#
#   scripts/test-sqlite.sh [PATTERN…]    all scripts, or those whose names match (select*, fts3*)
#   scripts/test-sqlite.sh --short       those of bindings/sqlite/tcl/short.txt
#
# Builds SQLite's test fixture from Debian's source package, once. A script runs in a folder and a
# process of its own, as an ordinary user. Fails on a failure that bindings/sqlite/tcl/expected.txt
# does not list, and on one that it lists for a script that ran without it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/sqlite-suite
mkdir -p "$work"
patterns=("${@:-*}")
if [ "${1:-}" = --short ]; then
    mapfile -t patterns < <(grep -v '^#' bindings/sqlite/tcl/short.txt)
fi

# What is needed of the system.
missing=()
dpkg -s tcl8.6-dev >/dev/null 2>&1 || missing+=(tcl8.6-dev)
dpkg -s zlib1g-dev >/dev/null 2>&1 || missing+=(zlib1g-dev)
command -v xz >/dev/null || missing+=(xz-utils)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "missing: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi

# SQLite's sources, from a list of sources of their own.
if ! compgen -G "$work/sqlite3-*/configure" >/dev/null; then
    mkdir -p "$work/lists/partial"
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    echo "deb-src http://deb.debian.org/debian $release main" >"$work/sources.list"
    apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=-
        -o Dir::State::lists="$work/lists" -o APT::Sandbox::User=root)
    "${apt[@]}" update
    (cd "$work" && "${apt[@]}" source --download-only sqlite3)
    (cd "$work" && for archive in sqlite3_*.orig.tar.*; do tar xf "$archive"; done)
fi
sources=$(dirname "$(compgen -G "$work/sqlite3-*/configure" | head -1)")

# SQLite's test of several processes, which has one connection in each.
if [ ! -x "$work/mptest" ]; then
    mkdir -p "$work/build-mptest"
    cd "$work/build-mptest"
    CFLAGS=-O1 "$sources/configure" --disable-tcl >configure.log 2>&1
    make sqlite3.c >make.log 2>&1 || { tail -20 make.log >&2; exit 1; }
    cc -O1 -I. -DESKER_FIRST -c "$root/bindings/sqlite/tcl/load.c" -o load.o
    cc -O1 -I. -DSQLITE_USE_URI=1 -DSQLITE_EXTRA_INIT=esker_load -o "$work/mptest" \
        "$sources/mptest/mptest.c" sqlite3.c load.o -lm -ldl -lpthread
    cd "$root"
fi

# The test fixture, which asks for the extension when its first connection is opened.
if [ ! -x "$work/build/testfixture" ]; then
    mkdir -p "$work/build"
    cd "$work/build"
    CFLAGS=-O1 "$sources/configure" --with-tcl=/usr/lib/tcl8.6 >configure.log 2>&1
    cc -O2 -I"$sources/src" -I. -c "$root/bindings/sqlite/tcl/load.c" -o load.o
    make testfixture OPTS="-DSQLITE_EXTRA_INIT=esker_load" \
        LIBTCL="-ltcl8.6 -lm -ldl -lz $work/build/load.o" >make.log 2>&1 ||
        { tail -20 make.log >&2; exit 1; }
    cd "$root"
fi
cargo build --release --locked --quiet --package esker-sqlite

# A place that an ordinary user may use.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp -r "$sources" "$place/sqlite"
cp "$work/build/testfixture" "$target/release/libesker_sqlite.so" bindings/sqlite/tcl/*.tcl "$place"
mkdir "$place/run"
as_user=()
if [ "$(id -u)" = 0 ]; then
    chown -R nobody "$place"
    as_user=(setpriv --reuid=nobody --clear-groups)
fi
cat >"$place/one" <<'ONE'
#!/bin/bash
place=$(dirname "$0")
mkdir "$place/run/$1" && cd "$place/run/$1"
ESKER_SQLITE=$place/libesker_sqlite.so timeout 300 "$place/testfixture" "$place/run.tcl" \
    "$place/sqlite/test/permutations.test" inmemory_journal "$1" >"$place/run/$1.log" 2>&1
echo "code $?, $SECONDS s" >>"$place/run/$1.log"
rm -rf "${place:?}/run/$1"
ONE
chmod +x "$place/one"

cd "$place/run"
"${as_user[@]}" "$place/testfixture" "$place/names.tcl" "$place/sqlite/test" 2>/dev/null |
    grep '\.test$' | sort -u >"$place/names" || true
cd "$root"
while read -r name; do
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        if [[ $name == $pattern ]]; then echo "$name"; break; fi
    done
done <"$place/names" >"$place/chosen"

# Several processes write and read one database, some of which are killed. It sleeps most of the
# time, so that it runs beside the scripts.
several=()
for script in multiwrite01 crash01; do
    mkdir "$place/$script"
    cp "$work/mptest" "$sources"/mptest/*test "$place/$script"
    [ "$(id -u)" != 0 ] || chown -R nobody "$place/$script"
    (
        cd "$place/$script"
        database="file:$place/$script/mp.db?vfs=esker"
        ESKER_SQLITE=$place/libesker_sqlite.so timeout 300 "${as_user[@]}" ./mptest "$database" \
            --quiet "$script.test" >"$place/$script.log" 2>&1
    ) &
    several+=("$script:$!")
done

HOME=$place "${as_user[@]}" xargs -r -P "$(nproc)" -n 1 "$place/one" <"$place/chosen"

for one in "${several[@]}"; do
    if wait "${one#*:}"; then
        echo "mptest ${one%:*}: $(grep '^Summary' "$place/${one%:*}.log")"
    else
        tail -20 "$place/${one%:*}.log" >&2
        exit 1
    fi
done

# What a whole run counted, for `cargo xtask test-counts`.
counts=()
if [ $# = 0 ]; then counts=("${ESKER_COUNTS_DIR:-$target/esker-counts}"); fi
exec python3 scripts/test_sqlite_verdict.py "$place/run" bindings/sqlite/tcl/expected.txt \
    "${counts[@]}"
