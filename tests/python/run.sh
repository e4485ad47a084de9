#!/usr/bin/env bash
# run.sh BUILD FILE [ENVIRONMENT]: runs the tests of a file over build/python. The Python is MACAW_PYTHON, or the one that
# `./dev test` makes (.deps/python, or .deps/ENVIRONMENT), or that of the system. What it lacks beyond NumPy skips the tests
# that need it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python=${MACAW_PYTHON:-$PWD/../../.deps/${3:-python}/bin/python}
if [ $# -gt 2 ] && [ ! -x "$python" ]; then
  echo "skipped: $python is not there (./dev test makes it)"
  exit 77
fi
[ -x "$python" ] || python=/usr/bin/python3
if ! "$python" -c 'import numpy'; then
  echo "skipped: $python has no NumPy (Debian: python3-numpy)"
  exit 77
fi
MACAW_BUILD=$1 PYTHONPATH=$1/python exec "$python" -m unittest -v "$2"
