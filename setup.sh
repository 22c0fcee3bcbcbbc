#!/usr/bin/env bash
# Set up .venv with locked versions (Debian 12, Ubuntu; needs Python 3.11 or newer), then run a command:
#   bash setup.sh generate task=cardinality     generate a dataset
#   bash setup.sh train model=uniter            train and test a model
#   bash setup.sh evaluate model=NAME           ask a model about a dataset
#   bash setup.sh test                          run all tests
#   bash setup.sh check                         ruff and mypy
# Versions are those of requirements.lock. Missing system packages are installed with apt-get.
set -euo pipefail
cd "$(dirname "$0")"

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
say() { printf 'setup: %s\n' "$*" >&2; }

apt_install() { # PACKAGE...: system packages, which pip cannot install
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  command -v apt-get >/dev/null || { say "no apt-get here: install $* by other means, then run this again"; exit 1; }
  say "installing $*"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$@" >/dev/null
}

find_python() {
  for python in python3 python3.13 python3.12 python3.11; do
    if command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "$python"
      return
    fi
  done
  say "needs Python 3.11 or newer"
  exit 1
}

install() { # EXTRAS, such as [dev,train]
  local python stamp
  python=$(find_python)
  "$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  stamp="$1 $(cat requirements.lock pyproject.toml | sha256sum)"
  if [ "$(cat .venv/installed 2>/dev/null)" != "$stamp" ]; then
    say "installing the packages of requirements.lock into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e ".$1"
    echo "$stamp" >.venv/installed
  fi
}

browser() { # for the tests of HTML pages
  command -v chromium >/dev/null && command -v chromedriver >/dev/null || apt_install chromium chromium-driver
}

case "${1-}" in
  generate) shift; install ""; exec .venv/bin/python -m travlr.generate "$@" ;;
  train) shift; install "[train]"; exec .venv/bin/python train.py "$@" ;;
  evaluate) shift; install "[train,server]"; exec .venv/bin/python evaluate.py "$@" ;;
  test) shift; install "[dev,ray,train,analysis,notebooks,page,server]"; browser; exec .venv/bin/python -m pytest -n logical --dist loadfile --no-loadscope-reorder "$@" ;;
  check)
    install "[dev,ray,train,analysis,notebooks,page,server]"
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    ;;
  *) usage ;;
esac
