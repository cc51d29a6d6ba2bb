#!/usr/bin/env bash
# Installs the Debian packages that tests need and this machine lacks. `need` lines below are the whole list.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()

# need PACKAGE COMMAND...: the package is needed where the command fails.
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

need chromium sh -c "command -v chromium || command -v google-chrome"
need mariadb-server test -x /usr/sbin/mariadbd
need openssl command -v openssl
need postgresql test -d /usr/lib/postgresql
need rabbitmq-server test -x /usr/lib/rabbitmq/bin/rabbitmq-server
need redis-server command -v redis-server
need util-linux command -v setpriv
# CPython's own asyncio tests, which Debian keeps in a package of their own; other builds have them.
python=$(tools/find_python.sh)
if [[ $python == /usr/bin/* ]]; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  need "libpython$version-testsuite" "$python" -c "import test.test_asyncio"
fi

[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "headrace: tests need these Debian packages or their like: ${missing[*]}" >&2
  exit 2
fi
echo "==> installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
