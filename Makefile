# The commands of this repository. Each checks for what it needs and says what is missing.
#
#   make run     build the release binary and run the demonstration (indexes /usr), then half a
#                minute of TPC-C in SQLite, with its own log and over the page store
#   make test    every test: unit, property, crash, fault, documentation
#   make test-sqlite   SQLite's own test suite over the extension (a quarter of an hour)
#   make test-sqlite-short   the part of it that fits into some minutes
#   make test-clients  the extension under sqlite3, Python, APSW, rusqlite and better-sqlite3
#   make test-features  builds without codecs, without a C compiler, and for a microcontroller
#   make install PREFIX=/usr/local   the C library, with its header and a file for pkg-config
#   make test-install  the same into a folder of its own, and programs linked with it
#   make test-wheels   what pip installs, in clean virtualenvs
#   make wheels  the wheels of a release, for every Linux with glibc 2.28, in target/wheels
#   make dist    the command and the SQLite extension for release, stripped
#   make lint    formatting, clippy, rustdoc, the checks of the house, the fuzz targets' lock file
#   make msrv    the published packages compiled with the oldest Rust that they promise
#   make dependencies      unused dependencies, licences and sources of those in use
#   make release-checks    what a release must pass in addition (RELEASE.md); needs the network
#   make publish-dry-run   every package compiled from what would be uploaded
#   make docs    the API documentation, in target/doc
#   make bench   the benchmarks

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.PHONY: run test test-sqlite test-sqlite-short test-clients test-features lint msrv docs bench \
	install test-install test-wheels wheels dist need need-packages package dependencies \
	release-checks publish-dry-run

export PATH := $(PATH):$(HOME)/.cargo/bin
CARGO ?= cargo
# The command with `demo`, `bench` and `lab`, as it is tested.
LAB := --features esker-cli/lab
# The tests of schedules and of planted bugs.
SCHEDULED := --features esker-index/_shuttle,esker-index/_planted,esker/_shuttle,esker/_planted
# Packages that stay in the repository.
UNPUBLISHED := --exclude esker-harness --exclude esker-testkit --exclude xtask
TARGET := $(or $(CARGO_TARGET_DIR),target)

run: need
	$(CARGO) build --release --locked --package esker-cli --features lab
	$(TARGET)/release/esker demo
	$(TARGET)/release/esker bench sqlite --mode=wal,esker --seconds=12 --warmup=3 --no-bars \
		--dir=$(TARGET)

test: need
	scripts/test.sh

test-sqlite: need
	scripts/test-sqlite.sh

test-sqlite-short: need
	scripts/test-sqlite.sh --short

test-clients: need
	scripts/test-clients.sh

test-features: need
	scripts/test-features.sh
	scripts/test-no-std.sh

install: need-packages
	PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' PROFILE='$(PROFILE)' \
		scripts/install-c.sh

test-install: need
	scripts/test-install.sh

test-wheels: need
	scripts/test-wheels.sh

wheels: need-packages
	scripts/wheels.sh

dist: need-packages
	$(CARGO) build --release --locked --package esker-cli --package esker-sqlite
	ls -l $(TARGET)/release/esker $(TARGET)/release/libesker_sqlite.so

lint: need
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(LAB) --locked -- --deny warnings
	$(CARGO) clippy -p esker-index -p esker --tests $(SCHEDULED) --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps $(LAB) --locked
	$(CARGO) xtask check
	$(CARGO) metadata --manifest-path testing/fuzz/Cargo.toml --locked --format-version 1 >/dev/null

msrv: need-packages
	scripts/msrv.sh

# That every package is complete and in itself; `publish-dry-run` compiles them, too.
package: need
	$(CARGO) package --workspace $(UNPUBLISHED) --locked --no-verify --allow-dirty --quiet

dependencies: need
	scripts/dependencies.sh

release-checks: need
	scripts/release-checks.sh

publish-dry-run: need
	$(CARGO) publish --workspace --dry-run --locked

docs: need
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps $(LAB) --locked

bench: need
	$(CARGO) bench --workspace $(LAB) --locked

need:
	@scripts/need.sh

# For what only builds published packages: the oldest Rust that they promise is enough.
need-packages:
	@scripts/need.sh packages
