#!/usr/bin/env bash
# Runs the Python tests on every supported interpreter that is here, but for the one that .venv has.
# Each gets an environment of its own and a quick build of the extension. The words given go to pytest.
# Tests marked `once` are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

chosen=$(.venv/bin/python -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
tested=()
while read -r version python; do
  [ "$version" != "$chosen" ] || continue
  "$python" -I tools/environment.py ".venv-$version" --requirements requirements/test.txt --profile quick
  echo "==> Python tests on CPython $version"
  ".venv-$version/bin/python" -m pytest -m "not slow and not once" "$@" </dev/null
  tested+=("$version")
done < <(tools/find_python.sh --all)
echo "==> Python tests ran on CPython $chosen (release build)${tested[*]:+ and ${tested[*]} (quick build)}"
