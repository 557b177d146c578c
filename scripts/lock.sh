#!/usr/bin/env bash
# Writes requirements.lock anew: everything that running, testing and building need, each file by its hash, no URL.
# Needs uv (`pipx install uv`). Pass `--upgrade` to take newer versions, `--upgrade-package NAME` for one of them.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v uv >/dev/null || { echo "lock: uv is missing; install it with 'pipx install uv' or 'pip install uv'" >&2; exit 2; }

body=$(mktemp)
trap 'rm -f "$body"' EXIT
cp requirements.lock "$body" 2>/dev/null || true # uv keeps the versions that it finds in its output file
uv pip compile pyproject.toml --extra kubernetes --group dev --group build \
  --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet \
  --output-file "$body" "$@" >/dev/null
if grep -nE '://|^-' "$body"; then
  echo "lock: the lines above name a place; the lock must work with any index" >&2
  exit 1
fi
{
  echo "# Made by scripts/lock.sh from pyproject.toml. Install with: pip install --require-hashes -r requirements.lock"
  cat <(grep -v '^#' "$body")
} >requirements.lock
