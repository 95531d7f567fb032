#!/bin/bash
# The map for raw flash without the standard library: compiled for a microcontroller (Cortex-M4F),
# where rustup has its target or can add it, and otherwise for this machine alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
target=thumbv7em-none-eabihf
features=(--no-default-features --features embedded-storage)

cargo check --quiet --locked --package esker-latree --no-default-features
cargo check --quiet --locked --package esker-latree "${features[@]}"

is_installed() {
    command -v rustup >/dev/null && rustup target list --installed | grep -qx "$target"
}

if ! is_installed && command -v rustup >/dev/null; then
    rustup target add "$target" >/dev/null 2>&1 || true
fi
if ! is_installed; then
    echo "no-std: SKIPPED for $target, which is not installed and cannot be added;" \
        "esker-latree was checked for this machine alone" >&2
    exit 0
fi
cargo check --quiet --locked --package esker-latree "${features[@]}" --target "$target"
echo "no-std: esker-latree compiles for $target"
