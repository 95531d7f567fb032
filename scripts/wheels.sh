#!/bin/bash
# The wheels and the source distribution of a release, in target/wheels.
#
# They run on every Linux with glibc 2.28 or later (manylinux_2_28): the linker and the C compiler
# are zig's, from PyPI, which know that library, so that it does not matter what this machine has.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
out=$target/wheels
glibc=2.28

rm -rf "$out" "$target/wheel-tools"
python3 -m venv "$target/wheel-tools"
"$target/wheel-tools/bin/pip" install --quiet 'maturin[zig]>=1.9,<2' cargo-zigbuild 'setuptools>=77'
export PATH="$target/wheel-tools/bin:$PATH"

maturin sdist --manifest-path bindings/python/Cargo.toml --out "$out"
maturin build --release --locked --zig --compatibility "manylinux_${glibc/./_}" \
    --manifest-path bindings/python/Cargo.toml --out "$out"

triple=$(uname -m)-unknown-linux-gnu
cargo zigbuild --quiet --release --locked --package esker-sqlite --target "$triple.$glibc"
ESKER_LIBRARY=$target/$triple/release/libesker_sqlite.so \
    ESKER_PLATFORM="manylinux_${glibc/./_}_$(uname -m)" \
    pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$out" bindings/sqlite/python

# Each works where it is installed, in a clean virtualenv.
for wheel in "$out"/*.whl; do
    rm -rf "$target/wheel-try"
    python3 -m venv "$target/wheel-try"
    "$target/wheel-try/bin/pip" install --quiet "$wheel"
    case $wheel in
        */esker_sqlite-*) "$target/wheel-try/bin/python" \
            bindings/sqlite/python/tests/test_esker_sqlite.py ;;
        *) "$target/wheel-try/bin/python" -c 'import esker; print(esker.__version__)' ;;
    esac
done
ls -l "$out"
