#!/usr/bin/env bash
# Checks that what compiles the extension is here; one line and status 2 if not.
#
#   tools/toolchain.sh [COMPONENT...]    a component is a cargo subcommand of its own: fmt, clippy
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "headrace: $1" >&2
  exit 2
}

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
command -v cargo >/dev/null && command -v rustc >/dev/null ||
  fail "no Rust toolchain (cargo) was found: install Rust $wanted or newer, for example with rustup (https://rustup.rs)"
have=$(rustc --version | cut -d' ' -f2) || fail "rustc does not run: install Rust $wanted or newer (rustup default stable)"
[ "$(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n1)" = "$wanted" ] ||
  fail "Rust $have is too old: install $wanted or newer (rustup update)"
command -v cc >/dev/null ||
  fail "no C compiler (cc) was found, and Rust links with it: install one (Debian and Ubuntu: apt install gcc libc6-dev)"
for component in "$@"; do
  cargo "$component" --version >/dev/null 2>&1 ||
    fail "cargo $component is missing: install it (rustup component add rustfmt clippy; Debian and Ubuntu: apt install rustfmt rust-clippy)"
done
