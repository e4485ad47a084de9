#!/usr/bin/env bash
# Scale: what a population of a million clients, and a data file larger than memory should hold, cost.
#
#   bench/scale.sh [million|file|all]        needs build/bin (./dev build) and python3; about ten minutes
#
# million  1,000,000 synthetic clients against 1000, both generated on demand, turn by turn so that other load
#          hits both: seconds to the first round, rounds and examples a second (medians), PSS of server and worker.
#          The two populations' cohorts differ a little in size by chance, which examples a second leave out; CPU
#          time an example also leaves out what else the machine does.
# file     a prepared file of at least 2 GB with 100,000 clients: seconds to write it, then the same figures from it.
#
# MB are peaks of the PSS, which counts the pages of a mapped file that happen to be in the page cache, 2 MB at a time
# where the kernel keeps it so; "own" is the worker's memory without them: what it needs.
#
# ROUNDS (default 150), REPEATS (3), SCRATCH (a folder with 3 GB free) and MACAW (the program) may be set in the
# environment.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
rounds=${ROUNDS:-150}
repeats=${REPEATS:-3}
scratch=$(mktemp -d "${SCRATCH:-${TMPDIR:-/tmp}}/macaw-scale-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
macaw=${MACAW:-build/bin/macaw}
[[ -x $macaw ]] || { echo "bench/scale.sh: $macaw is missing; ./dev build makes it" >&2; exit 1; }
case $what in million | file | all) ;; *) sed -n '2,18p' "$0" >&2; exit 2 ;; esac

config=examples/synthetic.toml
common=(--set evaluation.every=0 --rounds "$rounds" --quiet)

# run NAME ARGUMENTS...: one simulation; adds a line of figures to $scratch/figures.
run() {
  local name=$1 out=$scratch/run
  shift
  rm -rf "$out"
  python3 - "$name" "$out" "$scratch/figures" "$macaw" simulate "$config" --out "$out" "${common[@]}" "$@" <<'PY'
import json, os, resource, subprocess, sys, time

name, out, figures, *command = sys.argv[1:]
def own_memory(parent):  # of the workers, without the pages of files that they map
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, _, rest = open(f"/proc/{pid}/stat").read().rpartition(")")
            if "macaw-worker" not in name or int(rest.split()[1]) != parent:
                continue
            lines = open(f"/proc/{pid}/smaps_rollup").read().splitlines()
            total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
        except (OSError, ValueError):
            pass  # it has just ended
    return total


begin = time.monotonic()
process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
first, own = None, 0
while process.poll() is None:
    if first is None and os.path.exists(out + "/metrics.jsonl") and os.path.getsize(out + "/metrics.jsonl"):
        first = time.monotonic() - begin  # the first round is done
    if first is not None:
        own = max(own, own_memory(process.pid))
    time.sleep(0.02 if first is None else 0.5)
if process.returncode:
    sys.exit(f"{name}: exit code {process.returncode}")
summary = json.load(open(out + "/summary.json"))
ends = [e["t"] for e in map(json.loads, open(out + "/events.jsonl")) if e["event"] == "round"]
rows = [json.loads(line) for line in open(out + "/metrics.jsonl")]
skip = len(ends) // 10  # caches and allocators settle
seconds = ends[-1] - ends[skip]
memory = summary["peak_memory_bytes"]
used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of all its processes, the start included
with open(figures, "a") as f:
    f.write(json.dumps({
        "name": name, "first": first,
        "rounds": (len(ends) - 1 - skip) / seconds,
        "examples": sum(r["examples"] for r in rows[skip + 1:]) / seconds,
        "cpu": 1e6 * (used.ru_utime + used.ru_stime) / sum(r["examples"] for r in rows),
        "server": memory["server"], "workers": sum(memory["workers"]), "own": own}) + "\n")
PY
}

# table: medians by name, in the order of their first run.
table() {
  python3 - "$scratch/figures" <<'PY'
import json, statistics, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
names = list(dict.fromkeys(row["name"] for row in rows))
print(f"\n{'':34}{'first round s':>14}{'rounds/s':>10}{'examples/s':>12}{'CPU us/ex.':>12}{'server MB':>11}{'worker MB':>11}"
      f"{'sum MB':>8}{'own MB':>8}")
median = {}
for name in names:
    mine = [row for row in rows if row["name"] == name]
    m = {key: statistics.median(row[key] for row in mine) for key in mine[0] if key != "name"}
    median[name] = m
    print(f"{name:34}{m['first']:14.2f}{m['rounds']:10.2f}{m['examples']:12.0f}{m['cpu']:12.2f}"
          f"{m['server'] / 1e6:11.1f}{m['workers'] / 1e6:11.1f}{(m['server'] + m['workers']) / 1e6:8.1f}{m['own'] / 1e6:8.1f}"
          f"   of {len(mine)}: rounds/s " + " ".join(f"{row['rounds']:.2f}" for row in mine))
base = median[names[0]]
for name in names[1:]:
    print(f"{name} / {names[0]}: rounds/s {median[name]['rounds'] / base['rounds']:.3f}, "
          f"examples/s {median[name]['examples'] / base['examples']:.3f}, "
          f"CPU time an example {median[name]['cpu'] / base['cpu']:.3f}")
PY
  rm -f "$scratch/figures"
}

echo "load at the start: $(cut -d' ' -f1-3 /proc/loadavg); $(nproc) cores; $rounds rounds, $repeats times"

if [[ $what != file ]]; then
  for ((i = 0; i < repeats; ++i)); do
    run "1,000 clients, on demand" --clients 1000 --set data.resident=false
    run "1,000,000 clients, on demand" --clients 1000000
  done
  table
fi

if [[ $what != million ]]; then
  file=$scratch/clients.safetensors
  # Sizes from 50 to 110 rows of 60 floats: a little over 2 GB.
  SECONDS=0
  $macaw data prepare "$config" --set data.synthetic.clients=100000 --set data.synthetic.max_size=110 -o "$file" \
    > "$scratch/prepare.log" || { cat "$scratch/prepare.log" >&2; exit 1; }
  printf '\nprepared file: %s bytes, 100,000 clients, written in %d s\n' "$(stat -c %s "$file")" "$SECONDS"
  for ((i = 0; i < repeats; ++i)); do
    run "100,000 clients, on demand" --clients 100000 --set data.synthetic.max_size=110 --set data.resident=false
    run "100,000 clients, prepared file" --set data.source=prepared --set "data.path=$file"
  done
  table
fi
echo "load at the end: $(cut -d' ' -f1-3 /proc/loadavg)"
