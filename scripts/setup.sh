#!/usr/bin/env bash
# Makes .venv and installs the project in it from the hashed lock. Usage: scripts/setup.sh VENV_DIR
# Works as root or not, with or without Debian's python3-venv. PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python3.14; do
    if is_new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  echo "setup: no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python3 make setup" >&2
  return 2
}

# Debian splits ensurepip off into python3-venv. Try, in this order: the plain way, virtualenv by the system's pip into
# a throw-away folder (needs no rights and touches nothing), Debian's package where we may install it.
make_venv() {
  local python=$1 spare
  if "$python" -m ensurepip --version >/dev/null 2>&1; then
    "$python" -m venv --clear "$venv"
    return
  fi
  if "$python" -m pip --version >/dev/null 2>&1; then
    spare=$(mktemp -d)
    if "$python" -m pip install --quiet --target "$spare" virtualenv \
      && PYTHONPATH=$spare "$python" -m virtualenv --quiet --clear --python "$python" "$venv"; then
      rm -rf "$spare"
      return
    fi
    rm -rf "$spare"
  fi
  if scripts/apt.sh python3-venv && "$python" -m ensurepip --version >/dev/null 2>&1; then
    "$python" -m venv --clear "$venv"
    return
  fi
  echo "setup: $python cannot make virtual environments here; run 'sudo apt-get install python3-venv' and try again" >&2
  return 2
}

if ! { [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
  python=$(find_python)
  echo "setup: making $venv with $python"
  make_venv "$python"
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
echo "setup: installing the locked requirements"
"$venv/bin/python" -m pip install --quiet --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e .
"$venv/bin/python" -m pip check
touch "$venv/.ready"
