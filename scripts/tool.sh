# Sourced by the scripts that need a tool of cargo: builds it once. Not from the folder of the
# workspace, whose toolchain file and lints are no business of it.
tool() {
    command -v "cargo-$1" >/dev/null || (cd / && cargo install --locked --quiet "cargo-$1")
}
