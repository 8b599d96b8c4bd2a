# Builds, runs, tests and installs the module. `make help` lists the targets.

## PORT=7000            for run: the port (without it 6379, or the next free one)
## REDIS_SERVER=program for run, demo, test, soak, memcheck and bench: another server than redis-server
## SOAK_SECONDS=600     for soak: how long; SOAK_SEED=number repeats what happened
## PREFIX=/usr/local    for install and uninstall: where to
## DESTDIR=folder       for install and uninstall: a root folder to put before PREFIX

PREFIX ?= /usr/local

# Where cargo builds. Absolute, because the servers that load the module run in
# folders of their own.
export CARGO_TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The scripts and the tests load these two files.
export TOKENBUCKET_MODULE := $(CARGO_TARGET_DIR)/release/libtokenbucket.so
export TOKENBUCKET_PANIC_MODULE := $(CARGO_TARGET_DIR)/panic/release/libtokenbucket.so
# With leading arguments where it has spaces.
ifdef REDIS_SERVER
export TOKENBUCKET_SERVER := $(REDIS_SERVER)
endif
# A toolchain that was installed a minute ago is not in the PATH of this shell yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

INSTALLED := $(PREFIX)/lib/redis/modules/tokenbucket.so
# The client is checked with each of them alone, and with none.
CLIENT_FEATURES := tokio blocking cluster sentinel tls tower tracing metrics
SHELL_SCRIPTS := $(wildcard scripts/*.sh) .ci/run

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@sed -n 's/^## /  /p' $(MAKEFILE_LIST)

.PHONY: run
run: build ## Start redis-server with the module in the foreground
	@exec scripts/run.sh

.PHONY: demo
demo: build ## Show a burst, a denial, the wait and the refill on a throw-away server
	@exec scripts/demo.sh

.PHONY: deps
deps: ## Install the missing packages through apt-get, or say which they are
	@scripts/deps.sh

.PHONY: build
build: deps ## Build the module: target/release/libtokenbucket.so
	cargo build --release --locked

# With a command that panics, for the tests of the guard. Never installed.
.PHONY: build-panic
build-panic: deps
	cargo build --release --locked --features panic-command --target-dir $(CARGO_TARGET_DIR)/panic

.PHONY: test
test: build build-panic ## Run all tests, those against real servers included
	cargo test --workspace --exclude tokenbucket-client --locked
	cargo test -p tokenbucket-client --all-features --locked

.PHONY: test-matrix
test-matrix: build build-panic ## Run the tests over the wire on every server that packages carry
	scripts/test-matrix.sh

.PHONY: soak
soak: build ## Mixed traffic, restarts and failovers for SOAK_SECONDS (600), every token accounted for
	SOAK_SECONDS=$${SOAK_SECONDS:-600} cargo test --locked --test soak -- --nocapture

.PHONY: fuzz
fuzz: deps ## Run the fuzz targets for FUZZ_SECONDS (60) each; needs a nightly toolchain
	scripts/fuzz.sh

.PHONY: memcheck
memcheck: build build-panic ## Run the tests over the wire with the servers under valgrind
	scripts/memcheck.sh

.PHONY: lint
lint: deps ## Run clippy, rustdoc and shellcheck; a warning is an error
	cargo clippy --workspace --exclude tokenbucket-client --all-targets --locked -- -D warnings
	cargo clippy -p tokenbucket-client --all-features --all-targets --locked -- -D warnings
	@set -e; for features in '' $(CLIENT_FEATURES); do \
		echo cargo clippy -p tokenbucket-client --no-default-features --features "'$$features'"; \
		cargo clippy --quiet -p tokenbucket-client --locked \
			--no-default-features --features "$$features" -- -D warnings; \
	done
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --document-private-items
	RUSTDOCFLAGS='-D warnings' cargo doc -p tokenbucket-client --all-features --no-deps --locked
	@if command -v shellcheck >/dev/null; then \
		echo shellcheck -x $(SHELL_SCRIPTS); shellcheck -x $(SHELL_SCRIPTS); \
	else \
		echo 'shellcheck: skipped, it is not installed'; \
	fi

# The two crates that others build on: without a warning, and from their packages alone.
.PHONY: package
package: deps ## Make the packages of the crates core and client, and build from them
	scripts/package.sh

.PHONY: next-driver
next-driver: deps ## Check that the client builds with the next major version of its driver
	scripts/next-driver.sh

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: fmt-check
fmt-check: ## Check that the code is formatted
	cargo fmt --all --check

.PHONY: bench
bench: build ## Measure the arithmetic, the commands against SET, INCR and a Lua script, the client
	cargo bench --locked
	cargo bench -p tokenbucket-client --locked
	scripts/redis-benchmark.sh

# Takes what `make build` built, so that `sudo make install` needs no Rust.
.PHONY: install
install: ## Copy the built module to PREFIX/lib/redis/modules
	@test -f $(TOKENBUCKET_MODULE) || { echo 'install: nothing is built yet, run: make build' >&2; exit 1; }
	umask 022 && install -D -m 0755 $(TOKENBUCKET_MODULE) $(DESTDIR)$(INSTALLED)
	@echo 'Add this line to redis.conf and restart the server:'
	@echo '  loadmodule $(INSTALLED)'

.PHONY: uninstall
uninstall: ## Remove what install copied
	rm -f $(DESTDIR)$(INSTALLED)

.PHONY: clean
clean: ## Remove everything that was built
	cargo clean
