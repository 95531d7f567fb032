#!/bin/bash
# What `pip` installs, in clean virtualenvs: the wheel and the source distribution of `esker`, and
# the wheel of `esker-sqlite`. The tests of the packages themselves are elsewhere
# (scripts/pytest.sh); here it is that everything is in them, licences included.
#
# ESKER_PROFILE is cargo's profile for `esker`, `dev` unless given; the extension is built for
# release, as the runs of SQLite's suite build it.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

mkdir -p "${CARGO_TARGET_DIR:-target}"
CARGO_TARGET_DIR=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
export CARGO_TARGET_DIR PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
export MATURIN_PEP517_ARGS="--profile ${ESKER_PROFILE:-dev} --locked"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A clean virtualenv with these packages, as `$work/NAME`.
environment() {
    local name=$1
    shift
    python3 -m venv "$work/$name"
    "$work/$name/bin/pip" install --quiet "$@"
}

uses_esker() {
    (cd "$work" && "$1/bin/python" - <<'PYTHON'
import tempfile
from importlib import metadata

import esker
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    with esker.open(folder + "/a.esker") as db:
        for codec in ("none", "lz4", "zstd"):
            keyspace = db.keyspace(codec, compression=codec)
            keyspace[b"ada"] = b"1815"
            assert list(keyspace.items()) == [(b"ada", b"1815")]
    np.save(folder + "/a.npy", np.arange(6).reshape(2, 3))
    turned = esker.rearrange(folder + "/a.npy", "h w -> w h", folder + "/b.npy")
    assert turned.tolist() == [[0, 3], [1, 4], [2, 5]]
names = {each.name for each in metadata.files("esker") or []}
assert {"LICENSE-MIT", "LICENSE-APACHE", "py.typed"} <= names, names
about = metadata.metadata("esker")
assert about["License-Expression"] == "MIT OR Apache-2.0", about
assert about.get_all("Project-URL") and about["Summary"], about
assert metadata.version("esker") == esker.__version__
PYTHON
    )
}

environment tools 'maturin>=1.9,<2' 'setuptools>=77'
export PATH="$work/tools/bin:$PATH"
maturin sdist --manifest-path bindings/python/Cargo.toml --out "$work/dist"
pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/dist" bindings/python
# One for every CPython from 3.9 on.
compgen -G "$work/dist/esker-*-cp39-abi3-*.whl" >/dev/null
environment wheel "$work"/dist/esker-*.whl
uses_esker wheel
# Its Cargo.lock has more packages than its workspace: cargo leaves them out, which is a change.
MATURIN_PEP517_ARGS="--profile ${ESKER_PROFILE:-dev}" environment source "$work"/dist/esker-*.tar.gz
uses_esker source

ESKER_PROFILE=release pip wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir "$work/dist" bindings/sqlite/python
environment sqlite --no-deps "$work"/dist/esker_sqlite-*.whl
(cd "$work" && sqlite/bin/python "$OLDPWD/bindings/sqlite/python/tests/test_esker_sqlite.py")
echo "wheels: $(cd "$work/dist" && echo *) are complete and work where they are installed"
