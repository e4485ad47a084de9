#!/usr/bin/env bash
# run.sh BUILD FILE: runs the tests of a file with a Python that has PyTorch, from 1.13 on: MACAW_PYTHON, that of `./dev bench peers`,
# the one that `./dev test` makes, or the system's. Skipped where none of them has it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
readonly DEPS=$PWD/../../.deps
tried=()
for python in ${MACAW_PYTHON:+"$MACAW_PYTHON"} "$DEPS/peers/torch/bin/python" "$DEPS/python/bin/python" /usr/bin/python3; do
  tried+=("$python")
  if "$python" -c 'import numpy, torch.nn.utils.stateless' 2>/dev/null; then
    MACAW_BUILD=$1 exec "$python" -m unittest -v "$2"
  fi
done
echo "skipped: none of these has NumPy and PyTorch 1.13: ${tried[*]}"
exit 77
