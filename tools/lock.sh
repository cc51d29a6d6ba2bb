#!/usr/bin/env bash
# Compiles requirements/*.in, and the extra headrace[bench], to lock files with hashes, for every supported interpreter at once.
# `make lock` takes the newest versions; `tools/lock.sh --keep` changes only what the .in files ask for.
set -euo pipefail
cd "$(dirname "$0")/.."

upgrade=--upgrade
[ "${1:-}" != --keep ] || upgrade=--no-upgrade
python=.venv-lock/bin/python
if [ ! -x "$python" ]; then
  "$(tools/find_python.sh)" -m venv .venv-lock
fi
"$python" -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/lock.txt

# compile NAME SOURCE...: one lock file from what its sources ask for.
compile() {
  local lock=requirements/$1.txt
  shift
  "$python" -m uv pip compile "$upgrade" --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --output-file "$lock" "$@"
}

compile lock requirements/lock.in
compile build requirements/build.in
# Each is installed beside the ones before it, and so at their versions.
compile test requirements/test.in --constraint requirements/build.txt
compile bench requirements/build.in pyproject.toml --extra bench --constraint requirements/test.txt
