#!/bin/bash
# The extension under clients as they are: the examples of bindings/sqlite/examples and those of the
# guide, one after the other, each with a database of its own.
#
# What a client needs is installed below the target folder (from PyPI, npm and crates.io), and from
# Debian where root runs this. A client that cannot be had has failed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/clients"
target=$(cd "$target" && pwd)
work=$target/clients
examples=$PWD/bindings/sqlite/examples
library=$target/release/libesker_sqlite.so

# Whether the headers of the Node that runs stand in a folder.
has_headers() {
    local major
    major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
    [ -n "$major" ] &&
        grep -qs "^#define NODE_MAJOR_VERSION $major\$" "$1/include/node/node_version.h"
}

missing=()
command -v sqlite3 >/dev/null || missing+=(sqlite3)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v node >/dev/null || missing+=(nodejs libnode-dev)
command -v npm >/dev/null || missing+=(npm)
command -v g++ >/dev/null || missing+=(g++)
command -v make >/dev/null || missing+=(make)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]}"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null ||
            echo "apt-get does not have all of: ${missing[*]}" >&2
    else
        echo "missing: apt-get install ${missing[*]}" >&2
    fi
fi

cargo build --release --locked --quiet --package esker-sqlite

sqlite3_cli() {
    "$examples/shell_sqlite3.sh" "$library" "$1"
}

python_sqlite3() {
    python3 "$examples/python_sqlite3.py" "$library" "$1"
}

# As where Python was built without loading of extensions.
python_ctypes() {
    PYTHONPATH=$examples python3 -c 'import sys, python_sqlite3 as example
example.load = example.load_directly
example.main(*sys.argv[1:])' "$library" "$1"
}

# Python with packages of PyPI.
python_with() {
    local python=$work/python/bin/python
    [ -x "$python" ] || python3 -m venv "$work/python"
    "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

apsw() {
    python_with apsw
    "$work/python/bin/python" "$examples/python_apsw.py" "$library" "$1"
}

gunicorn() {
    python_with gunicorn
    python3 scripts/test_workers.py "$work/python/bin/gunicorn" "$examples" "$library" "$1"
}

rusqlite() {
    cargo build --locked --quiet --package esker-sqlite --example rust_rusqlite
    "$target/debug/examples/rust_rusqlite" "$library" "$1"
}

# Its binary comes with it, or is built, which takes some minutes, from the headers of Node: those
# beside it, Debian's, or what npm finds.
better_sqlite3() {
    local node=$work/node prefix
    mkdir -p "$node"
    if ! (cd "$node" && node -e 'new (require("better-sqlite3"))(":memory:")') 2>/dev/null; then
        for prefix in "$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")" /usr; do
            if has_headers "$prefix"; then export npm_config_nodedir=$prefix; break; fi
        done
        (cd "$node" && npm install --no-save --no-audit --no-fund --loglevel=error \
            better-sqlite3@11)
    fi
    NODE_PATH=$node/node_modules node "$examples/node_better_sqlite3.js" "$library" "$1"
}

# The examples of the guide, with the command as `cargo test` builds it.
guide() {
    cargo build --locked --quiet --package esker-cli
    local folder
    folder=$(dirname "$1")/guide
    mkdir -p "$folder/target/release"
    ln -s "$library" "$target/debug/esker" "$folder/target/release/"
    python3 scripts/run_guide.py docs/guide/sqlite.md "$folder"
    python3 scripts/run_guide.py docs/guide/workers.md "$folder"
    mv "$folder/app.db" "$1"
    rm -r "$folder"
}

# Two SQLites in one process: the second is told why it cannot have the extension.
two_sqlites() {
    PYTHONPATH=$examples "$work/python/bin/python" -c 'import sys, apsw, python_apsw, python_sqlite3
python_sqlite3.load(sys.argv[1])
try:
    python_apsw.load(sys.argv[1])
except apsw.Error as error:
    assert "another SQLite" in str(error), error
else:
    sys.exit("the extension was loaded twice")
python_sqlite3.main(*sys.argv[1:])' "$library" "$1"
}

# Runs a client, and looks at what it left: one file, and that a store. SQLite opens many things
# without an error where the extension was not asked.
client() {
    local folder log=$work/$1.log
    folder=$(mktemp -d)
    # In a shell of its own, where an error ends it although its status is looked at here.
    (set -e; "$1" "$folder/example.db") >"$log" 2>&1 &
    if wait $! &&
        [ "$(ls -A "$folder")" = example.db ] &&
        [ "$(head -c 16 "$folder/example.db")" = "Esker page store" ]; then
        passed=$((passed + 1))
        echo "$1: ok ($(tail -n 1 "$log"))"
    else
        failed=$((failed + 1))
        echo "left in its folder: $(ls -A "$folder")" >>"$log"
        sed 's/^/    /' "$log"
        echo "$1: FAILED"
    fi
    rm -rf "$folder"
}

passed=0 failed=0
export PYTHONDONTWRITEBYTECODE=1
for name in sqlite3_cli python_sqlite3 python_ctypes apsw gunicorn rusqlite better_sqlite3 \
    two_sqlites guide; do
    client "$name"
done
echo "clients: $passed passed, $failed failed"
[ "$failed" = 0 ]
