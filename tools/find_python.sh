#!/usr/bin/env bash
# Finds the CPython that a virtual environment is to be made from.
#
#   tools/find_python.sh         prints the path of the best one
#   tools/find_python.sh --all   prints "VERSION PATH" for the best one of each supported version
#
# A name on PATH proves nothing: pyenv's shims exist for versions that are not selected, and Debian ships
# interpreters without the venv module. So every candidate is run.
set -euo pipefail

SUPPORTED=(3.13 3.12 3.11 3.14) # best first: the version that is measured most, then the older ones

# Says "VERSION venv PATH", or "VERSION bare PATH" where the venv module is missing, of a CPython with the GIL
# that runs; else nothing. PATH is the interpreter's own, behind shims and active environments.
probe() {
  "$1" -I -c '
import importlib.util, sys, sysconfig
if sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    whole = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
    print("%d.%d" % sys.version_info[:2], "venv" if whole else "bare", sys._base_executable)
' 2>/dev/null || true
}

# Every interpreter of version $1 that might be there.
candidates() {
  command -v "python$1" || true
  if command -v pyenv >/dev/null; then
    for python in "$(pyenv root)"/versions/"$1".*/bin/python; do
      [ ! -x "$python" ] || echo "$python"
    done
  fi
  command -v python3 || true
}

# Puts the path of a version $1 that can make environments into `found`; status 1 if there is none.
# Remembers in `bare` one that only lacks the venv module.
find_version() {
  local candidate version kind path
  while read -r candidate; do
    read -r version kind path < <(probe "$candidate") || continue
    [ "$version" = "$1" ] || continue
    if [ "$kind" = venv ]; then found=$path; return; fi
    bare=$path
  done < <(candidates "$1")
  return 1
}

fail() {
  echo "headrace: $1" >&2
  exit 2
}

found= bare=

if [ "${1:-}" = --all ]; then
  for version in "${SUPPORTED[@]}"; do
    if find_version "$version"; then echo "$version $found"; fi
  done
  exit
fi

if [ -n "${PYTHON:-}" ]; then
  read -r version kind path < <(probe "$PYTHON") || fail "PYTHON=$PYTHON does not run, or is not a CPython with the GIL"
  [[ " ${SUPPORTED[*]} " == *" $version "* ]] || fail "PYTHON=$PYTHON is $version; supported are 3.11 to 3.14"
  [ "$kind" = venv ] || fail "$path has no venv module: install it (Debian and Ubuntu: apt install python$version-venv)"
  echo "$path"
  exit
fi

for version in "${SUPPORTED[@]}"; do
  if find_version "$version"; then echo "$found"; exit; fi
done
[ -z "$bare" ] || fail "$bare has no venv module: install it (Debian and Ubuntu: apt install python3-venv)"
fail "no CPython 3.11 to 3.14 was found: install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: PYTHON=/path/to/python"
