#!/bin/bash
# Dependencies that nothing uses (cargo-machete); licences, sources and forbidden crates of all that
# are used (cargo-deny). The tools are built from crates.io where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
# shellcheck source=scripts/tool.sh
. scripts/tool.sh

tool machete
cargo machete
tool deny
# Advisories come from a repository of their own, which `make release-checks` fetches.
cargo deny --all-features --locked check bans licenses sources
