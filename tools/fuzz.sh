#!/usr/bin/env bash
# Runs every fuzz target, or those named, for SECONDS each; the first fault found ends it with a status that is not 0.
# Corpora grow in fuzz/corpus, what breaks a target is kept in fuzz/artifacts; neither is committed.
#
#   tools/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "headrace: $1" >&2
  exit 2
}

seconds=${1:-}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "usage: tools/fuzz.sh SECONDS [TARGET...]"
shift
cargo fuzz --version >/dev/null 2>&1 || fail "cargo fuzz is missing: install it (cargo install cargo-fuzz --locked)"
cargo +nightly --version >/dev/null 2>&1 || fail "no nightly toolchain: install one (rustup toolchain install nightly)"
if [ $# -eq 0 ]; then
  mapfile -t targets < <(cargo +nightly fuzz list)
  set -- "${targets[@]}"
fi

"$(tools/find_python.sh)" fuzz/seeds.py
cargo +nightly fuzz build
for target in "$@"; do
  echo "==> $target"
  options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -print_pcs=0 -print_funcs=0)
  dictionary=fuzz/${target%%_*}.dict
  [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
  mkdir -p "fuzz/corpus/$target"
  cargo +nightly fuzz run "$target" -- "${options[@]}"
done
