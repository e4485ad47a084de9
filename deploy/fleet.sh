#!/usr/bin/env bash
# A fleet on one machine, from nothing: an authority, a server without data, devices that enrol with one shard each and
# train over mutual TLS; one of them is killed, loses its identity and enrols again. Then the simulation of the same
# shards, and whether both end with the same model.
#   deploy/fleet.sh [--devices N] [--rounds N] [--algorithm NAME] [--lifetime TIME] [--namespaces] [--arm64]
#                   [--config FILE] [--bin FOLDER] [--keep FOLDER]
# --lifetime: of the devices' certificates, which renew themselves. --namespaces gives each device a network namespace
# of its own (root). --arm64: device-2 runs the arm64 worker of build-arm64/, by qemu, and all devices train softmax
# regression in each round (docs/guides/machines.md, arm64). Exit code 0: the same model.
set -euo pipefail

devices=8 rounds=6 algorithm=fedavg namespaces=no arm64=no keep= config= lifetime=30d
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
programs=$here/build/bin
[[ -x $programs/macaw ]] || programs=$(dirname "$(command -v macaw || echo "$programs/macaw")") # those installed
while (($#)); do
  case $1 in
    --devices) devices=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --algorithm) algorithm=$2; shift ;;
    --bin) programs=$2; shift ;;
    --config) config=$2; shift ;;
    --keep) keep=$2; shift ;;
    --lifetime) lifetime=$2; shift ;;
    --namespaces) namespaces=yes ;;
    --arm64) arm64=yes ;;
    -h | --help) sed -n '2,10p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) echo "fleet.sh: unknown option $1 (--help lists them)" >&2; exit 2 ;;
  esac
  shift
done
[[ $devices -ge 3 ]] || { echo "fleet.sh: --devices must be 3 or more" >&2; exit 2; }
[[ -x $programs/macaw ]] || { echo "fleet.sh: no programs in $programs (./dev build, or --bin)" >&2; exit 2; }
config=${config:-$here/examples/mnist10k.toml}
arm64_worker=("$here/cmake/arm64_run.sh" "$here/build-arm64/bin/macaw-worker")
if [[ $arm64 == yes && ! -x ${arm64_worker[1]} ]]; then
  echo "fleet.sh: no arm64 worker at ${arm64_worker[1]} (MACAW_PRESET=arm64 ./dev build macaw-worker)" >&2
  exit 2
fi

home=${keep:-$(mktemp -d)}
mkdir -p "$home"
home=$(cd "$home" && pwd)
server= # its process
declare -a device_pids=()
began=$(date +%s.%N)
say() { printf '%6.1f s  %s\n' "$(awk "BEGIN {print $(date +%s.%N) - $began}")" "$*"; }

make_namespaces() { # a bridge with the server on it, and a cable to each device
  ip link add macaw0 type bridge
  ip address add 10.77.0.1/16 dev macaw0
  ip link set macaw0 up
  for ((i = 0; i <= devices; i++)); do
    ip netns add "macaw-$i"
    ip link add "macaw$i-out" type veth peer name eth0 netns "macaw-$i"
    ip link set "macaw$i-out" master macaw0 up
    ip -n "macaw-$i" address add "10.77.$((1 + i / 250)).$((1 + i % 250))/16" dev eth0
    ip -n "macaw-$i" link set eth0 up
  done
}
remove_namespaces() {
  for ((i = 0; i <= devices; i++)); do ip netns delete "macaw-$i" 2>/dev/null || true; done
  ip link delete macaw0 2>/dev/null || true
}

finish() {
  kill "${device_pids[@]}" ${server:+"$server"} 2>/dev/null || true
  wait 2>/dev/null || true
  if [[ $namespaces == yes ]]; then remove_namespaces; fi
  if [[ -z $keep ]]; then rm -rf "$home"; fi
}
trap finish EXIT

fail() {
  echo "fleet.sh: $*" >&2
  tail -n 3 "$home"/server.log "$home"/device-*/log >&2 2>/dev/null || true
  exit 1
}

settings=(--set "partition.clients=$devices" --set "cohort.size=$(((devices + 1) / 2))" --set "run.rounds=$rounds"
  --set "algorithm.name=$algorithm" --set evaluation.every=1)
server_settings=(--set "server.workers=$((devices + 1))" --set server.durability=commit)
if [[ $arm64 == yes ]]; then
  settings+=(--set model.name=logistic --set "cohort.size=$devices")
  server_settings+=(--set server.mixed_profiles=true) # the instruction sets differ
fi
"$programs/macaw" plan "$config" "${settings[@]}" "${server_settings[@]}" --out "$home/server.toml" > /dev/null
if grep -q / <(grep -v '^#' "$home/server.toml"); then fail "the server's file names a path"; fi
"$programs/macaw" data shards "$config" "${settings[@]:0:2}" --out "$home/shards" > /dev/null
say "a server's file without data or path, and $devices shards"

"$programs/macaw" pki init --dir "$home/authority" --name rehearsal > /dev/null
address=127.0.0.1
if [[ $namespaces == yes ]]; then
  make_namespaces
  address=10.77.0.1
fi
"$programs/macaw-server" --config "$home/server.toml" --run-dir "$home/run" --listen "$address:0" \
  --authority "$home/authority" > "$home/server.log" 2>&1 &
server=$!
for ((i = 0; i < 300; i++)); do
  [[ -s $home/run/address ]] && break
  kill -0 "$server" 2>/dev/null || fail "the server did not start"
  sleep 0.1
done
address=$(< "$home/run/address")
say "authority and server, $address"

# join NUMBER FOLDER [worker's arguments]: invites the device, enrols it and starts it. Its node file is in the folder.
join() {
  local device=$1 folder=$2 name=device-$1 role=device clients=$1 code where=()
  local worker=("$programs/macaw-worker")
  shift 2
  if [[ $arm64 == yes && $device == 2 ]]; then worker=("${arm64_worker[@]}"); fi
  if [[ $namespaces == yes ]]; then where=(ip netns exec "macaw-$device"); fi
  if [[ $device == "$devices" ]]; then name=tester role=worker clients=tester; fi
  code=$("$programs/macaw" pki invite --dir "$home/authority" "$name" --role "$role" --clients "$clients" \
    --lifetime "$lifetime" 2>/dev/null)
  "${where[@]}" "${worker[@]}" enrol --server "$address" --identity "$folder/identity" "$code" >> "$folder/log"
  "${where[@]}" "${worker[@]}" --config "$folder/node.toml" --scratch "$folder/scratch" \
    --state "$folder/state" "$@" >> "$folder/log" 2>&1 &
  device_pids[device]=$!
}

write_node() { # FOLDER: [node] and [workers]; [data] comes on standard input
  mkdir -p "$1/scratch"
  printf '[node]\nserver = "%s"\nidentity = "identity"\n[workers]\nslots = 1\n' "$address" > "$1/node.toml"
  cat >> "$1/node.toml"
}

for device in $(seq 0 $((devices - 1)) | sort -R --random-source=<(yes)); do # in another order than the clients'
  folder=$home/device-$device
  write_node "$folder" <<< $'[data]\nsource = "prepared"\npath = "data.safetensors"'
  sed -i 's/^\[node\]/[node]\nowner = true/' "$folder/node.toml"
  mv "$home/shards/$device.safetensors" "$folder/data.safetensors"
  join "$device" "$folder"
done
# A worker that has the public test set and no clients.
folder=$home/device-$devices
"$programs/macaw" data prepare "$config" "${settings[@]:0:2}" --out "$home/all.safetensors" > /dev/null
mkdir -p "$folder"
mv "$home/all.safetensors" "$folder/test.safetensors"
write_node "$folder" <<< $'[data]\nsource = "prepared"\npath = "test.safetensors"'
join "$devices" "$folder" --clients "$devices:$devices"
say "$devices devices with a shard each have enrolled, and a tester with the test images"

rows() { if [[ -f $home/run/metrics.jsonl ]]; then wc -l < "$home/run/metrics.jsonl"; else echo 0; fi; }
until (($(rows) >= 2)); do
  kill -0 "$server" 2>/dev/null || fail "the server ended before round 2"
  sleep 0.05
done
victim=1
kill -KILL "${device_pids[victim]}"
wait "${device_pids[victim]}" 2>/dev/null || true
"$programs/macaw" pki revoke --dir "$home/authority" "device-$victim" --why "lost its identity"
rm -rf "$home/device-$victim/identity"
join "$victim" "$home/device-$victim"
say "device-$victim was killed, lost its identity, and has enrolled again"

wait "$server" || fail "the server failed"
server=
digest() { sed -n "s/^ *\"$1\": \"\\(.*\\)\",*$/\\1/p" "$2/summary.json"; }
accuracy() { sed -n 's/.*"test_accuracy": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
say "trained: test accuracy $(accuracy "$home/run")"
if [[ $arm64 == yes ]]; then
  parts=$("$programs/macaw" log "$home/run" | grep -c 'accepted *device-2 ' || true)
  [[ $parts == "$rounds" ]] || fail "the arm64 device trained in $parts rounds, not in $rounds"
  say "device-2, an arm64 program, trained in each of the $rounds rounds"
fi
"$programs/macaw" audit verify "$home/authority" > /dev/null || fail "a log of the authority was changed"

"$programs/macaw" simulate "$config" "${settings[@]}" --out "$home/simulated" --quiet > /dev/null
say "the same as a simulation: test accuracy $(accuracy "$home/simulated")"
code=0
for what in model_digest state_digest; do
  fleet=$(digest $what "$home/run") simulated=$(digest $what "$home/simulated")
  printf '%-12s  fleet %s\n              simulated %s\n' "$what" "${fleet:-none}" "${simulated:-none}"
  if [[ $fleet != "$simulated" || ($what == model_digest && -z $fleet) ]]; then code=1; fi
done
if [[ $code == 0 ]]; then echo same; else echo DIFFERENT; fi
exit $code
