#!/usr/bin/env bash
# Makes a container image of Debian 12's packages and the .debs that `./dev package` made, and of nothing else. Needs root,
# mmdebstrap, and Debian's mirrors. Writes FOLDER/macaw-image.tar, the image's files.
#   deploy/container/build.sh [--packages FOLDER] [--out FOLDER] [--root FOLDER]
# With buildah it also writes FOLDER/macaw-image.docker.tar: `docker load` or `podman load` takes it. Without, import the
# files: docker import --change 'USER macaw-worker' --change 'ENTRYPOINT [...]' macaw-image.tar macaw
# --root keeps the files as a folder, too, for deploy/try_clean_root.sh.
set -euo pipefail

packages=build/packages out=build/packages root=
while (($#)); do
  case $1 in
    --packages) packages=$2; shift ;;
    --out) out=$2; shift ;;
    --root) root=$2; shift ;;
    -h | --help) sed -n '2,8p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) echo "build.sh: unknown option $1 (--help lists them)" >&2; exit 2 ;;
  esac
  shift
done
# As sh reads it, whatever the name; printf %q writes $'...' for some, which only bash reads.
quoted() { printf "'%s'" "$(sed "s/'/'\\\\''/g" <<<"$1")"; }
die() { echo "build.sh: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || die "the image's files belong to root: run it as root"
shopt -s nullglob
debs=("$packages"/macaw_*.deb "$packages"/macaw-server_*.deb "$packages"/macaw-worker_*.deb "$packages"/macaw-backend-torch_*.deb)
((${#debs[@]} >= 3)) || die "$packages does not hold the packages macaw, macaw-server and macaw-worker (./dev package)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=${root:-$work/root}
version=$(dpkg-deb --field "${debs[0]}" Version)

# No manuals and no lists of packages in the image. The examples stay: they are the rehearsal.
hooks=("--customize-hook=mkdir \"\$1/packages\"")
for deb in "${debs[@]}"; do hooks+=("--customize-hook=copy-in $(quoted "$(readlink -f "$deb")") /packages"); done
hooks+=('--customize-hook=chroot "$1" sh -c "apt-get install --yes --no-install-recommends /packages/*.deb && rm -r /packages"')
mmdebstrap --variant=minbase --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/macaw*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' --include=tini "${hooks[@]}" \
  --customize-hook='rm -rf "$1"/var/cache/apt "$1"/var/lib/apt/lists "$1"/var/log/*.log' --quiet bookworm "$root"
tar --create --file "$out/macaw-image.tar" --numeric-owner --sort=name --directory "$root" .
echo "$out/macaw-image.tar: $(($(stat -c %s "$out/macaw-image.tar") / 1000000)) MB, macaw $version"

command -v buildah > /dev/null || exit 0
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
store=(--root "$work/store" --runroot "$work/run")
image=$(buildah "${store[@]}" from scratch)
buildah "${store[@]}" add "$image" "$out/macaw-image.tar" / > /dev/null
buildah "${store[@]}" config --user macaw-worker --workingdir /var/lib/macaw --volume /var/lib/macaw \
  --entrypoint '["/usr/bin/tini", "--"]' --cmd 'macaw-worker --help' \
  --label org.opencontainers.image.version="$version" "$image"
buildah "${store[@]}" commit --quiet "$image" "docker-archive:$out/macaw-image.docker.tar:macaw:$version" > /dev/null
echo "$out/macaw-image.docker.tar: $(($(stat -c %s "$out/macaw-image.docker.tar") / 1000000)) MB"
