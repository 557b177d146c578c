#!/usr/bin/env bash
# Writes the locks anew, each file by its hash, no URL: requirements.lock for running, testing and building, and
# requirements-run.lock, the part of it that a container needs to run.
# Needs uv (`pipx install uv`). Pass `--upgrade` to take newer versions, `--upgrade-package NAME` for one of them.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v uv >/dev/null || { echo "lock: uv is missing; install it with 'pipx install uv' or 'pip install uv'" >&2; exit 2; }

compile() { # OUTPUT [UV ARGUMENTS]
  local output=$1 body
  shift
  body=$(mktemp)
  cp "$output" "$body" 2>/dev/null || true # uv keeps the versions that it finds in its output file
  uv pip compile pyproject.toml --all-extras \
    --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet \
    --output-file "$body" "$@" >/dev/null
  if grep -nE '://|^-' "$body"; then
    echo "lock: the lines above name a place; the lock must work with any index" >&2
    exit 1
  fi
  {
    echo "# Made by scripts/lock.sh from pyproject.toml. Install with: pip install --require-hashes -r $output"
    grep -v '^#' "$body"
  } >"$output"
  rm -f "$body"
}

compile requirements.lock --group dev --group build "$@"
compile requirements-run.lock --constraint requirements.lock
