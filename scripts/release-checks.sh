#!/bin/bash
# What a release must pass in addition to `.ci/run`: advisories about all dependencies (cargo-deny),
# breaks of the API since the last tag (cargo-semver-checks), the oldest Rust.
#
# The tools are built from crates.io where they are missing, which takes some minutes each.
# Advisories come from their repository, so this needs the network.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

# shellcheck source=scripts/tool.sh
. scripts/tool.sh

scripts/dependencies.sh
cargo deny --all-features check advisories

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
