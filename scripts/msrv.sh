#!/bin/bash
# Compiles what is published with the oldest Rust that Cargo.toml promises.
#
# A compiler that rustup has already is used. ESKER_MSRV=required fetches one, and fails where that
# is not possible, as before a release; without it, where there is none, this says that nothing was
# compiled: the names of the standard library are held to the promise by clippy
# (`incompatible_msrv`, an error in `make lint`) all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! rustup run "$oldest.0" rustc --version 2>/dev/null; then
    if [ "${ESKER_MSRV:-}" != required ]; then
        echo "msrv: Rust $oldest is not here: nothing was compiled" >&2
        exit
    fi
    rustup toolchain install "$oldest.0" --profile minimal --no-self-update
fi
packages=(esker esker-flash esker-pages esker-permute esker-terminal esker-cli esker-sqlite
    esker-c esker-python)
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv" \
    cargo "+$oldest.0" check --locked --quiet "${packages[@]/#/--package=}"
echo "msrv: ${packages[*]} compile with Rust $oldest"
