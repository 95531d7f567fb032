#!/bin/bash
# Compiles what is published with the oldest Rust that Cargo.toml promises.
#
# The compiler comes from rustup. Where that cannot fetch it, the names of the standard library are
# still held to the promise by clippy (`incompatible_msrv`, an error in `make lint`), and this says
# that nothing was compiled; with ESKER_MSRV=required it fails instead, as before a release.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! rustup run "$oldest.0" rustc --version 2>/dev/null; then
    timeout 120 rustup toolchain install "$oldest.0" --profile minimal --no-self-update || {
        echo "msrv: Rust $oldest is not here and cannot be fetched: nothing was compiled" >&2
        [ "${ESKER_MSRV:-}" != required ]
        exit
    }
fi
packages=(esker esker-flash esker-permute esker-cli esker-sqlite esker-c esker-python)
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv" \
    cargo "+$oldest.0" check --locked --quiet "${packages[@]/#/--package=}"
echo "msrv: ${packages[*]} compile with Rust $oldest"
