#!/usr/bin/env bash
# Installs the Debian packages that tests need and this machine lacks. Only CI does so unasked.
set -euo pipefail

# A program that a test starts, and the package that has it.
NEEDED=(
  "redis-server redis-server"
)

missing=()
for line in "${NEEDED[@]}"; do
  read -r program package <<<"$line"
  command -v "$program" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "headrace: tests need these Debian packages or their like: ${missing[*]}" >&2
  exit 2
fi
echo "==> installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
