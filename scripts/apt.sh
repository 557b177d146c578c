#!/usr/bin/env bash
# Installs Debian packages where that needs no question: as root, or by a sudo that asks nothing. Else returns 1 quietly.
# Usage: scripts/apt.sh PACKAGE...
set -euo pipefail

command -v apt-get >/dev/null || exit 1
if [ "$(id -u)" = 0 ]; then
  as_root=(env)
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n env)
else
  exit 1
fi
as_root+=(DEBIAN_FRONTEND=noninteractive)

echo "apt: installing $*"
install=("${as_root[@]}" apt-get install --yes --no-install-recommends "$@")
# Package lists may be absent (a fresh container) or old (a file has moved): fetch them only when the first try fails.
"${install[@]}" </dev/null >/dev/null 2>&1 || {
  "${as_root[@]}" apt-get update </dev/null >/dev/null
  "${install[@]}" </dev/null >/dev/null
}
