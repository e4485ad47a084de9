#!/usr/bin/env bash
# Overhead: what a round costs besides its clients' steps, part by part.
#
#   bench/overhead.sh [slots...]             default: 1 2; needs build/bin (./dev build); seconds
#
# Trains softmax regression on Synthetic(1,1), CLIENTS (default 100) of 1000 a round, and prints `macaw timeline` of the
# run: times of every round, from the run's own timeline.json. ROUNDS (default 400) and MACAW may be set in the environment,
# too.
set -euo pipefail
cd "$(dirname "$0")/.."
macaw=${MACAW:-build/bin/macaw}
[[ -x $macaw ]] || { echo "bench/overhead.sh: $macaw is missing; ./dev build makes it" >&2; exit 1; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/macaw-overhead-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if (($# == 0)); then set -- 1 2; fi
for s in "$@"; do
  echo "== $s slot(s): $macaw simulate examples/synthetic.toml --slots $s --rounds ${ROUNDS:-400} --set evaluation.every=0 --set cohort.size=${CLIENTS:-100}"
  "$macaw" simulate examples/synthetic.toml --slots "$s" --rounds "${ROUNDS:-400}" --set evaluation.every=0 \
    --set cohort.size="${CLIENTS:-100}" \
    --out "$scratch/$s" --quiet > /dev/null
  python3 -c 'import json, sys; print("rounds/s %.1f" % json.load(open(sys.argv[1]))["rounds_per_second"])' "$scratch/$s/summary.json"
  "$macaw" timeline "$scratch/$s"
  echo
done
