#!/usr/bin/env bash
# Compiles requirements/*.in to lock files with hashes, for every supported interpreter at once.
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

# build comes first: it is in the others too, at one version.
for name in lock build bench test; do
  constraint=()
  [[ $name != bench && $name != test ]] || constraint=(--constraint requirements/build.txt)
  "$python" -m uv pip compile "$upgrade" --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --custom-compile-command "make lock" "${constraint[@]}" --output-file "requirements/$name.txt" "requirements/$name.in"
done
