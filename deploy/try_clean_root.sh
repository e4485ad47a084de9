#!/usr/bin/env bash
# Tries the .debs that `./dev package` made on a clean Debian 12: a new root, the packages and what they depend on, and in
# it the rehearsal of a fleet by the programs as installed (deploy/fleet.sh). Needs root, mmdebstrap, and Debian's mirrors.
#   deploy/try_clean_root.sh [--packages FOLDER] [--root FOLDER] [OPTIONS OF fleet.sh]
# --root keeps the root, or uses one that is there: a clean one, or that of an image (deploy/container/build.sh --root). Exit code 0: the same model.
set -euo pipefail

packages=build/packages root= fleet=()
while (($#)); do
  case $1 in
    --packages) packages=$2; shift ;;
    --root) root=$2; shift ;;
    -h | --help) sed -n '2,5p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) fleet+=("$1") ;;
  esac
  shift
done
die() { echo "try_clean_root.sh: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || die "a new root is made by root"
[[ -n $root ]] || { root=$(mktemp -d) && trap 'rm -rf "$root"' EXIT; }
log=$(mktemp)
began=$(date +%s.%N)
say() { printf '%6.1f s  %5d MB  %s\n' "$(awk "BEGIN {print $(date +%s.%N) - $began}")" "$(du -smx "$root" | cut -f1)" "$*"; }
quietly() { "$@" > "$log" 2>&1 || { tail -n 20 "$log" >&2; die "failed: $*"; }; }
# In the root, with a /proc and processes of its own: nothing that is started there outlives the command.
inside() {
  unshare --mount --pid --fork --kill-child sh -c \
    'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" && root=$1 && shift && exec chroot "$root" "$@"' sh "$root" "$@"
}

if [[ ! -e $root/usr/bin/macaw ]]; then
  shopt -s nullglob
  debs=("$packages"/macaw_*.deb "$packages"/macaw-server_*.deb "$packages"/macaw-worker_*.deb)
  ((${#debs[@]} == 3)) || die "$packages does not hold the packages macaw, macaw-server and macaw-worker (./dev package)"
  [[ -e $root/usr/bin/dpkg ]] || quietly mmdebstrap --variant=minbase bookworm "$root"
  say "a clean Debian 12"
  mkdir "$root/packages"
  cp "${debs[@]}" "$root/packages"
  # Installs packages with what apt fetches for them, and leaves nothing else behind.
  install() {
    quietly inside sh -c "apt-get update && apt-get install --yes --no-install-recommends $1"
    inside apt-get clean
    rm -rf "$root"/var/lib/apt/lists/*
    libraries=$(grep -c '^Setting up lib' "$log" || true)
  }
  install '/packages/macaw-worker_*.deb' # a device's package alone
  say "macaw-worker, and the $libraries libraries that it needs"
  install '/packages/macaw*.deb'
  say "macaw-server and macaw, and $libraries more libraries"
fi
for program in macaw macaw-server macaw-worker; do
  if inside ldd "/usr/bin/$program" | grep 'not found'; then die "$program does not find its libraries"; fi
done
for user in server worker; do
  inside getent passwd "macaw-$user" > /dev/null || die "there is no user macaw-$user"
done
[[ $(inside stat -c '%U %a' /var/lib/macaw/identity) == "macaw-worker 700" ]] || die "/var/lib/macaw/identity is open to others"

inside bash /usr/share/doc/macaw/deploy/fleet.sh ${fleet[@]+"${fleet[@]}"}
say "the fleet and its simulation"
