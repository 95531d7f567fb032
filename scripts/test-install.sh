#!/bin/bash
# The C library as users get it: installed into a folder of its own, found by pkg-config, linked
# both ways, found at run time by its SONAME.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PREFIX=$work/usr PROFILE=${PROFILE:-dev} scripts/install-c.sh
export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig

source=bindings/c/examples/quickstart.c
read -ra flags < <(pkg-config --cflags --libs esker)
cc -std=c11 -Wall -Werror "$source" "${flags[@]}" -o "$work/shared"

# The linker prefers the shared library: the other one is asked for by its name.
read -ra flags < <(pkg-config --static --cflags --libs esker)
cc -std=c11 -Wall -Werror "$source" "${flags[@]/#-lesker_c/-l:libesker_c.a}" -o "$work/static"

# The name without a version is for linking alone.
rm "$work/usr/lib/libesker_c.so"
LD_LIBRARY_PATH=$work/usr/lib "$work/shared" "$work/store" >"$work/said"
grep -qx 'ada: 1815' "$work/said"
# Without LD_LIBRARY_PATH: it finds no shared one.
"$work/static" "$work/other" | cmp - "$work/said"
test -s "$work/usr/share/licenses/esker/LICENSE-MIT"
echo "install: the C library is found by pkg-config and SONAME, and links both ways"
