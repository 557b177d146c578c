#!/usr/bin/env bash
# Prints the folder that holds Debian's `prometheus` and `promtool`, getting them where they are missing.
#
# The package is unpacked into build/tools rather than installed: that needs no rights and starts no service on port
# 9090. apt's lists are kept there too when the machine has none. Prints nothing, and says why on stderr, when there is
# no way; the tests that need it then skip, or fail under GOVERNOR_REQUIRE_REAL=1.
set -uo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/build/tools

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  dirname "$(command -v prometheus)"
  exit
fi
if [ -x "$tools/usr/bin/prometheus" ]; then
  echo "$tools/usr/bin"
  exit
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "tools: this is not Debian; put 'prometheus' and 'promtool' on the PATH to run the tests that need them" >&2
  exit
fi

echo "tools: unpacking Debian's prometheus into build/tools" >&2
mkdir -p "$tools/lists/partial" "$tools/cache/archives/partial"
own_lists=(-o "Dir::State::lists=$tools/lists" -o "Dir::Cache=$tools/cache")
fetch() { (cd "$tools" && apt-get "$@" download prometheus </dev/null >/dev/null 2>&1); }
if (fetch || { apt-get "${own_lists[@]}" update </dev/null >/dev/null 2>&1; fetch "${own_lists[@]}"; }) \
  && dpkg-deb -x "$tools"/prometheus_*.deb "$tools"; then
  rm -rf "$tools"/prometheus_*.deb "$tools/lists" "$tools/cache"
  echo "$tools/usr/bin"
else
  echo "tools: could not get it; run 'sudo apt-get install prometheus' to run the tests that need it" >&2
fi
