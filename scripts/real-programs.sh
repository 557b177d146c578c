#!/usr/bin/env bash
# Gets the real programs that the tests run against into build/tools and prints the folder to put on the PATH.
# Usage: scripts/real-programs.sh [NAME...], by default all.
#
# A program that is on the PATH already is taken as it is. Debian's packages are unpacked with the libraries they need
# rather than installed: that needs no rights and starts no service. Those of PyPI get a virtual environment for each file
# in scripts/real/, hashed like every lock. What cannot be had is said on stderr; the tests that need it then skip, or
# fail under GOVERNOR_REQUIRE_REAL=1.
set -uo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/build/tools
bin=$tools/bin
mkdir -p "$bin"

# What each name brings, and where from: Debian package, or the lock of a virtual environment.
declare -A deb=([prometheus]=prometheus [promtool]=prometheus [haproxy]=haproxy [redis-server]=redis-server)
declare -A lock=() where=()
set -f # the paths below have stars in them
for file in $(find scripts/real -name "*.lock"); do
  for word in $(sed -n 's/^# brings: //p' "$file"); do
    lock[${word%%=*}]=$(basename "$file" .lock)
    where[${word%%=*}]=${word#*=}
  done
done

say() { echo "tools: $*" >&2; }

have() { [ -x "$bin/$1" ] || PATH=${PATH//$bin:/} command -v "$1" >/dev/null; }

# The package and what it depends on and this machine lacks, unpacked under build/tools; apt's lists are kept there too
# where the machine has none.
unpack() {
  local package=$1 name own_lists=() missing
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { say "this is not Debian; put $package on the PATH"; return 1; }
  say "unpacking Debian's $package into build/tools"
  plan() { apt-get "${own_lists[@]}" install --print-uris -qq --no-install-recommends "$package" </dev/null 2>/dev/null | cut -d' ' -f2 | cut -d_ -f1; }
  missing=$(plan)
  mkdir -p "$tools/debs"
  fetch() { (cd "$tools/debs" && apt-get "${own_lists[@]}" download $missing </dev/null >/dev/null 2>&1); }
  if [ -z "$missing" ] || ! fetch; then
    mkdir -p "$tools/lists/partial" "$tools/cache/archives/partial"
    own_lists=(-o "Dir::State::lists=$tools/lists" -o "Dir::Cache=$tools/cache")
    apt-get "${own_lists[@]}" update </dev/null >/dev/null 2>&1
    missing=$(plan)
    { [ -n "$missing" ] && fetch; } || { say "could not get it; run 'sudo apt-get install $package'"; return 1; }
  fi
  find "$tools/debs" -name "*.deb" -exec dpkg-deb -x {} "$tools" \;
  rm -rf "$tools/debs" "$tools/lists" "$tools/cache"
}

# A wrapper, so that the program finds the libraries that came with it. It keeps its pid.
wrap() {
  local name=$1 real
  real=$(find "$tools/usr" -path "*bin/$name" \( -type f -o -type l \) | head -n 1)
  [ -n "$real" ] || return 1
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$tools/usr/lib/$(uname -m)-linux-gnu" "$real" >"$bin/$name"
  chmod +x "$bin/$name"
}

environment() {
  local name=$1 venv=$tools/$1 file=scripts/real/$1.lock sum
  sum=$(sha256sum <"$file")
  [ "$(cat "$venv/.lock" 2>/dev/null)" = "$sum" ] && return
  say "installing scripts/real/$name.lock into build/tools/$name"
  export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
  # The project's own environment lends its pip: Debian's Python may have none.
  .venv/bin/python -m venv --clear --without-pip "$venv" >&2 \
    && .venv/bin/python -m pip --python "$venv/bin/python" install --quiet --no-deps --require-hashes -r "$file" >&2 \
    && echo "$sum" >"$venv/.lock" || { say "could not install scripts/real/$name.lock"; return 1; }
}

for name in "${@:-${!deb[@]} ${!lock[@]}}"; do
  for one in $name; do
    if [ -n "${lock[$one]:-}" ]; then
      environment "${lock[$one]}" && ln -sf "$(find "$tools/${lock[$one]}" -path "$tools/${lock[$one]}/${where[$one]}")" "$bin/$one"
    elif [ -n "${deb[$one]:-}" ]; then
      have "$one" || wrap "$one" || { unpack "${deb[$one]}" && wrap "$one"; }
    else
      say "nothing is called $one; there are ${!deb[*]} ${!lock[*]}"
      exit 2
    fi
  done
done
echo "$bin"
