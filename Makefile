# `make help` lists the targets. Each does its own set-up, and only what is not done yet.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# The interpreter to use; when empty, tools/find_python.sh chooses.
PYTHON ?=
# More words for pytest: make test-python PYTEST_ARGS="-k echo -x"
PYTEST_ARGS ?=
# For how long `make test-slow` runs each fuzz target.
FUZZ_SECONDS ?= 60
# Scenarios of `headrace bench list`, and options: make bench BENCH="http-hello --quick"
BENCH ?= tcp-echo http-hello
export PYTHON PYTEST_ARGS

BIN := .venv/bin
PREPARE = python=$$(tools/find_python.sh) && "$$python" -I tools/environment.py
# One interpreter for every cargo command: otherwise each compiles pyo3 anew for the one it finds.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help run test ready format lint types arrows test-rust test-python test-pythons test-slow fuzz bench fix lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

run: ## serve the demo application on http://127.0.0.1:8000
	@$(PREPARE) .venv --requirements requirements/build.txt --profile release
	@cd examples/demo && exec ../../$(BIN)/headrace serve demo:app --bind 127.0.0.1:8000

test: format lint types arrows test-rust test-python test-pythons ## run every check and every test
	@echo "==> every check passed"

ready: ## make the environment that the checks and tests use
	@$(PREPARE) .venv --requirements requirements/test.txt --profile release

format: ready ## check the formatting
	@tools/toolchain.sh fmt clippy
	cargo fmt --all --check
	$(BIN)/ruff format --check .

lint: ready ## run clippy and ruff; a warning fails
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	$(BIN)/ruff check .

types: ready ## run mypy, and hold the extension to its stubs
	$(BIN)/mypy
	$(BIN)/stubtest headrace._native --allowlist tools/stubtest_allowlist.txt

arrows: ready ## fail on a dependency that must never exist
	$(BIN)/python tools/check_arrows.py

test-rust: ready ## run the Rust tests
	cargo test --workspace --locked --quiet

test-python: ready ## run the Python tests on the chosen interpreter
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-pythons: ## run the Python tests on every other supported interpreter that is here
	@tools/test_pythons.sh $(PYTEST_ARGS)

test-slow: ready fuzz ## run the tests that take minutes, and fuzz
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

fuzz: ## fuzz each parser for FUZZ_SECONDS (60); needs a nightly Rust and cargo-fuzz
	@tools/fuzz.sh $(FUZZ_SECONDS)

bench: ## compare with other stacks: the scenarios BENCH (tcp-echo http-hello)
	@$(PREPARE) .venv --requirements requirements/bench.txt --profile release
	$(BIN)/headrace bench run $(BENCH)

fix: ready ## mend formatting and what the linters can mend
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## choose the newest versions of the Python packages in requirements/
	@tools/lock.sh

clean: ## remove everything that was built
	rm -rf .venv .venv-* .cache target fuzz/target .mypy_cache .pytest_cache .ruff_cache python/headrace/_native*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
