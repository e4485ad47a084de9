#!/usr/bin/env bash
# Tries the packages that `./dev package` made, as a new user: the .debs, and the tarballs. Each kind
# is unpacked into an empty folder, so nothing is installed and root is not needed. Some minutes.
#   deploy/try_packages.sh [FOLDER]        (default: build/packages)
set -euo pipefail

packages=$(readlink -f "${1:-build/packages}")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
say() { printf '\033[1m[packages]\033[0m %s\n' "$*"; }
die() { printf '[packages] error: %s\n' "$*" >&2; exit 1; }

# unpack KIND PACKAGE FOLDER: false where there is no such package, and an error where it cannot be unpacked.
unpack() {
  local file pattern=$2_*.deb
  [ "$1" = deb ] || pattern=$2-[0-9]*.tar.xz
  file=$(find "$packages" -name "$pattern") || die "$packages cannot be searched"
  if [ -z "$file" ]; then say "$1: no package $2; what it is for is left out"; return 1; fi
  case $1 in
    deb) dpkg-deb -x "$file" "$3" && ln -sfn usr "$3/prefix" ;;
    tar) tar -xf "$file" -C "$3" && ln -sfn "$(ls "$3" | grep -m1 '^macaw-')" "$3/prefix" ;;
  esac || die "this package cannot be unpacked, or there are several of its name: $file"
}

# What the module and the programs load must exist, here or in the system, and nothing of it in a build folder.
check_libraries() {
  local file
  for file in "$@"; do
    if ldd "$file" | grep -E 'not found|/\.deps/'; then die "$file does not find its libraries"; fi
  done
}

try() {
  local kind=$1 folder=$root/$1
  local prefix=$folder/prefix
  local macaw=$prefix/bin/macaw examples=$prefix/share/doc/macaw/examples
  mkdir -p "$folder/runs"
  unpack "$kind" macaw "$folder" || die "there is no package macaw in $packages: run ./dev package"
  if [ "$kind" = deb ]; then
    unpack deb macaw-server "$folder" && unpack deb macaw-worker "$folder" || die "a package of a program is missing"
  fi
  say "$kind: $(du -sh "$folder/." | cut -f1) of programs and examples; the quick start"
  check_libraries "$prefix"/bin/*
  "$macaw" doctor | grep 'back end'
  "$macaw" simulate "$examples/quickstart.toml" --out "$folder/runs/quickstart" --quiet
  "$macaw" simulate --resume "$folder/runs/quickstart" --rounds 102 --quiet

  echo "not HDF5" > "$folder/rows.h5"
  printf '[data]\nsource = "hdf5"\npath = "rows.h5"\n' > "$folder/hdf5.toml"
  local info=("$macaw" data info "$folder/hdf5.toml")
  { "${info[@]}" 2>&1 || true; } | grep -q "package macaw-data-hdf5" || die "without the HDF5 module, ${info[*]} does not say what to install"
  if unpack "$kind" macaw-data-hdf5 "$folder"; then
    say "$kind: the HDF5 module"
    check_libraries "$prefix/lib/macaw/data/libmacaw_hdf5.so"
    { "${info[@]}" 2>&1 || true; } | grep -q "no HDF5 file" || die "the HDF5 module does not read: ${info[*]}"
  fi

  local torch=(simulate "$examples/quickstart.toml" --out "$folder/runs/double" --rounds 2 --quiet --set run.dtype=float64)
  local code=0
  "$macaw" "${torch[@]}" || code=$?
  [ $code -eq 5 ] || die "without the LibTorch back end the exit code is $code instead of 5"
  if unpack "$kind" macaw-backend-torch "$folder"; then
    say "$kind: the LibTorch back end"
    check_libraries "$prefix/lib/macaw/libmacaw_torch.so"
    "$macaw" "${torch[@]}"
  fi
  if [ "$kind" = deb ]; then
    unpack deb macaw-dev "$folder" || die "there is no package macaw-dev"
    unpack deb macaw-backend-torch-dev "$folder" || return 0
  elif [ ! -e "$prefix/include/macaw/libtorch" ]; then
    say "$kind: no headers of LibTorch; the plug-in is left out"
    return 0
  fi
  say "$kind: a plug-in with a loss of its own"
  "$macaw" new --cpp heron --out "$folder/heron"
  cmake -S "$folder/heron" -B "$folder/heron/build" -Dmacaw_DIR="$prefix/lib/cmake/macaw" -DMACAW="$macaw" >/dev/null
  cmake --build "$folder/heron/build"
  ctest --test-dir "$folder/heron/build" --output-on-failure
}

try deb
try tar
say "done"
