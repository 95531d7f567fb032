#!/bin/bash
# What a release must pass in addition to `.ci/run`: advisories and licences of all dependencies
# (cargo-deny), dependencies that nothing uses (cargo-machete), breaks of the API since the last tag
# (cargo-semver-checks), the oldest Rust.
#
# The tools are built from crates.io where they are missing, which takes some minutes each: this is
# no part of `.ci/run`. Advisories come from their repository, so this needs the network.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

# A tool of cargo, built once. Not from the folder of the workspace, whose toolchain file and lints
# are no business of it.
tool() {
    command -v "cargo-$1" >/dev/null || (cd / && cargo install --locked --quiet "cargo-$1")
}

tool deny
cargo deny --all-features check

tool machete
cargo machete

last=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
if [ -n "$last" ]; then
    tool semver-checks
    for package in esker esker-pages esker-sqlite; do
        cargo semver-checks --package "$package" --baseline-rev "$last"
    done
else
    echo "release-checks: no tag yet: nothing to compare the API with"
fi

ESKER_MSRV=required scripts/msrv.sh
