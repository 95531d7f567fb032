#!/bin/bash
# Installs the C library: header, shared and static library, the file for pkg-config, licences.
#
#   PREFIX=/usr/local DESTDIR= LIBDIR=$PREFIX/lib PROFILE=release scripts/install-c.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
profile=${PROFILE:-release}
if [[ $prefix != /* || $libdir != /* ]]; then
    echo "install: PREFIX is a path from the root" >&2
    exit 1
fi

cargo build --locked --quiet --package esker-c --profile "$profile"
built=${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}
# What programs that are linked with it will look for, such as libesker_c.so.0.1.
soname=$(readelf -d "$built/libesker_c.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
version=$(cargo pkgid --locked --package esker-c | sed 's/.*[#@]//')

lib=${DESTDIR:-}$libdir
share=${DESTDIR:-}$prefix/share/licenses/esker
install -D -m 644 bindings/c/include/esker.h "${DESTDIR:-}$prefix/include/esker.h"
install -D -m 755 "$built/libesker_c.so" "$lib/libesker_c.so.$version"
[ "$soname" = "libesker_c.so.$version" ] || ln -sf "libesker_c.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libesker_c.so"
install -D -m 644 "$built/libesker_c.a" "$lib/libesker_c.a"
install -D -m 644 -t "$share" LICENSE-MIT LICENSE-APACHE
mkdir -p "$lib/pkgconfig"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" \
    bindings/c/esker.pc.in >"$lib/pkgconfig/esker.pc"
echo "installed esker $version for C below ${DESTDIR:-}$prefix (run ldconfig where it is the first)"
