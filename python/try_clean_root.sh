#!/usr/bin/env bash
# Tries the wheel that `./dev wheel` made on a clean system without a compiler: a new root with Python and its venv alone, the wheel and
# NumPy's, and in it the example. Needs root, mmdebstrap, and the mirrors of the system and of PyPI.
#   python/try_clean_root.sh [--wheel FILE] [--suite bookworm|jammy] [--root FOLDER]
# --root keeps the root, or uses one that is there. Exit code 0: the example trained, and the commands are on the PATH.
set -euo pipefail

wheels=(build/wheels/macaw-*.whl) suite=bookworm root=
while (($#)); do
  case $1 in
    --wheel) wheels=("$2"); shift ;;
    --suite) suite=$2; shift ;;
    --root) root=$2; shift ;;
    *) sed -n '2,6p' "${BASH_SOURCE[0]}" | cut -c3-; exit 2 ;;
  esac
  shift
done
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "try_clean_root.sh: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || die "a new root is made by root"
[[ -e ${wheels[0]} ]] || die "there is no wheel ${wheels[0]} (./dev wheel)"
[[ -n $root ]] || { root=$(mktemp -d) && trap 'rm -rf "$root"' EXIT; }
began=$(date +%s.%N)
say() { printf '%6.1f s  %5d MB  %s\n' "$(awk "BEGIN {print $(date +%s.%N) - $began}")" "$(du -smx "$root" | cut -f1)" "$*"; }
inside() {
  unshare --mount --pid --fork --kill-child sh -c \
    'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" && root=$1 && shift && exec chroot "$root" "$@"' sh "$root" "$@"
}

if [[ ! -e $root/usr/bin/python3 ]]; then
  case $suite in
    jammy) mirror='deb [trusted=yes] http://archive.ubuntu.com/ubuntu jammy main universe' python=3.10 ;;
    *) mirror= python=3.11 ;;
  esac
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv "$suite" "$root" ${mirror:+"$mirror"}
  say "a clean $suite with Python"
  mkdir "$root/wheels"
  python3 -m pip download --quiet --only-binary=:all: --python-version $python --platform manylinux2014_x86_64 \
    --dest "$root/wheels" 'numpy>=1.21,<2.3'
fi
if inside sh -c 'command -v cc c++ gcc cmake'; then die "the root has a compiler"; fi
rm -f "$root"/wheels/macaw-*.whl
cp "${wheels[0]}" "$root/wheels"
cp "$here/../examples/python/arrays.py" "$root/arrays.py"
inside rm -rf /env
inside python3 -m venv /env
inside env -i /env/bin/pip install --quiet --no-index --find-links /wheels macaw
say "pip install macaw"
inside env -i /env/bin/macaw --version
inside env -i sh -c 'cd /tmp && /env/bin/python /arrays.py'
say "ten lines, 1000 clients"
