#!/usr/bin/env bash
# Tries macaw.sbatch on a real Slurm: one slurmctld and three slurmd on this host. In the middle of the run a worker is
# killed, and a job of higher priority preempts all of it. Ends with the digests of the run and of its simulation; exit
# code 0: they are the same. Needs root and Debian's slurmctld, slurmd, slurm-client and munge.
#   deploy/slurm/try.sh [--bin FOLDER] [--keep FOLDER]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/../../build/bin keep=
while (($#)); do
  case $1 in
    --bin) bin=$2; shift ;;
    --keep) keep=$2; shift ;;
    -h | --help) sed -n '2,5p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) echo "try.sh: unknown option $1 (--help lists them)" >&2; exit 2 ;;
  esac
  shift
done
bin=$(readlink -f "$bin")
home=${keep:-$(mktemp -d)}
mkdir -p "$home"/{state,spool,log}
home=$(readlink -f "$home")
began=$(date +%s.%N)
pids=()
say() { printf '%6.1f s  %s\n' "$(awk "BEGIN {print $(date +%s.%N) - $began}")" "$*"; }
finish() {
  scancel --user root > /dev/null 2>&1 || true
  kill "${pids[@]}" 2> /dev/null || true
  wait 2> /dev/null || true
  if [[ -z $keep ]]; then rm -rf "$home"; fi
}
trap finish EXIT
fail() {
  echo "try.sh: $*" >&2
  tail -n 15 "$home"/job.log "$home"/log/*.log >&2 2> /dev/null || true
  exit 1
}
# until_true SECONDS COMMAND...
until_true() {
  local tries=$(($1 * 5))
  shift
  until "$@"; do
    ((tries-- > 0)) || fail "waited in vain: $*"
    sleep 0.2
  done
}

# A cluster of our own: its key, its ports, three nodes at this address.
mungekey --create --force --keyfile "$home/munge.key"
chown munge: "$home/munge.key" "$home/log"
chmod 755 "$home"
runuser -u munge -- /usr/sbin/munged --foreground --force --key-file "$home/munge.key" --socket "$home/log/munge" \
  --pid-file "$home/log/munged.pid" --log-file "$home/log/munged.log" --seed-file "$home/log/munge.seed" 2> /dev/null &
pids+=($!)
cat > "$home/slurm.conf" << CONF
ClusterName=trial
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=27817
AuthType=auth/munge
AuthInfo=socket=$home/log/munge
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool/%n
SlurmctldPidFile=$home/log/slurmctld.pid
SlurmdPidFile=$home/log/%n.pid
SlurmctldLogFile=$home/log/slurmctld.log
SlurmdLogFile=$home/log/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
$(for i in 1 2 3; do echo "NodeName=n$i NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((27820 + i)) CPUs=$(nproc)"; done)
PartitionName=low Nodes=n[1-3] Default=YES PriorityTier=1 GraceTime=20 State=UP
PartitionName=high Nodes=n[1-3] PriorityTier=10 PreemptMode=OFF State=UP
CONF
export SLURM_CONF=$home/slurm.conf MACAW_BIN=$bin
until_true 20 test -S "$home/log/munge"
/usr/sbin/slurmctld -D -i > "$home/log/slurmctld.out" 2>&1 &
pids+=($!)
for i in 1 2 3; do
  mkdir "$home/spool/n$i"
  /usr/sbin/slurmd -D -N "n$i" > "$home/log/n$i.out" 2>&1 &
  pids+=($!)
done
idle() { [[ $(sinfo --noheader --partition=low --states=idle --format=%D 2> /dev/null) == 3 ]]; }
until_true 60 idle
say "slurmctld and three slurmd"

cat > "$home/run.toml" << TOML
[run]
rounds = 12
seed = 3
[data]
source = "idx"
path = "$here/../../examples/data/mnist/t10k-images-idx3-ubyte.gz"
test_fraction = 0.1
[partition]
scheme = "dirichlet-class"
clients = 60
[model]
name = "lenet5"
[cohort]
size = 20
[local]
epochs = 3
batch_size = 10
lr = 0.1
[workers]
processes = 3
[server]
durability = "commit"
TOML
job=$(sbatch --parsable --partition=low --nodes=3 --output="$home/job.log" "$here/macaw.sbatch" "$home/run.toml" "$home/fleet")
rows() { if [[ -f $home/fleet/run/metrics.jsonl ]]; then wc -l < "$home/fleet/run/metrics.jsonl"; else echo 0; fi; }
has_rows() { (($(rows) >= $1)); }
until_true 120 has_rows 2
victim=$(pgrep -f "^$bin/macaw-worker --config $home/fleet/worker-1/node.toml" | head -n 1)
kill -KILL "$victim"
until_true 60 grep -q 'worker-1 was killed by signal 9' "$home/job.log"
say "job $job trains on $(squeue --noheader --job="$job" --format=%N); after $(rows) rounds a worker was killed, and is back"
until_true 120 has_rows 4
urgent=$(sbatch --parsable --partition=high --nodes=3 --ntasks-per-node=1 --cpus-per-task="$(nproc)" \
  --output=/dev/null --wrap 'srun hostname')
until_true 120 grep -q 'queued again' "$home/job.log"
say "job $urgent of higher priority has preempted it after $(rows) rounds"
over() { [[ -f $home/fleet/run/summary.json ]] && ! squeue --noheader --job="$job" 2> /dev/null | grep -q .; }
until_true 400 over
restarts=$(scontrol --oneliner show job "$job" 2> /dev/null | grep -o 'Restarts=[0-9]*' || true)
say "job $job was requeued and has ended, ${restarts:-Restarts unknown}"

"$bin/macaw" simulate "$home/run.toml" --out "$home/simulated" --quiet > /dev/null
digest() { sed -n 's/^ *"model_digest": "\(.*\)",*$/\1/p' "$1/summary.json"; }
slurm=$(digest "$home/fleet/run") simulated=$(digest "$home/simulated")
printf 'Slurm      %s\nsimulated  %s\n' "$slurm" "$simulated"
[[ -n $slurm && $slurm == "$simulated" ]] || fail DIFFERENT
echo same
