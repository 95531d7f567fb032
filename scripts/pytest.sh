#!/bin/bash
# Installs the Python package, with pip and in a virtualenv of its own below the target folder, and
# runs its tests. The native half is built as `cargo test` builds, to share what that has built.
# On a machine with apt, root gets python3-venv installed; others are told that it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
    else
        echo "pytest: no Python with venv: install python3-venv" >&2
        exit 1
    fi
fi

target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target"
CARGO_TARGET_DIR=$(cd "$target" && pwd)
export CARGO_TARGET_DIR
environment="$CARGO_TARGET_DIR/python"
rm -rf "$environment"
python3 -m venv "$environment"
export MATURIN_PEP517_ARGS="--profile dev --locked"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
"$environment/bin/pip" install --quiet 'bindings/python[test]'
# The guide's examples call the command; `cargo test` has built it.
cargo build --quiet --locked --package esker-cli
export ESKER_COMMAND="$CARGO_TARGET_DIR/debug/esker"
# The folder of the tests is not that of the sources: what is tested is what was installed.
"$environment/bin/python" -m pytest -p no:cacheprovider bindings/python/tests "$@"
