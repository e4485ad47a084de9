#!/usr/bin/env bash
# arm64_sysroot.sh FOLDER PACKAGE...: unpacks Debian's arm64 packages, and what they need, into FOLDER. The system's own
# packages are not touched: apt works with a list of installed packages that is empty. Needs no root.
set -euo pipefail
folder=$1; shift
part=$folder.part
rm -rf "$part" && mkdir -p "$part"/apt/{state/lists/partial,cache/archives/partial} "$part"/usr/{bin,lib}
part=$(realpath "$part")
touch "$part/apt/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=
  -o Dir::State="$part/apt/state" -o Dir::State::status="$part/apt/status" -o Dir::Cache="$part/apt/cache")
"${apt[@]}" update
"${apt[@]}" install --yes --download-only --no-install-recommends "$@" >/dev/null

ln -s usr/lib "$part/lib"
for package in "$part"/apt/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$part" --keep-directory-symlink --no-same-owner \
    --exclude={./bin,./sbin,./etc,./var,./usr/bin,./usr/sbin,./usr/share/{doc,man,locale,info}}
done
# Links to /lib/… would lead out of the folder.
find "$part/usr" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln -snfr "$part$target" "$link"
done
# gRPC's package file names programs; those that generate code are this machine's.
ln -s /usr/bin/grpc_*_plugin "$part/usr/bin/"
[ -e "$part/lib/ld-linux-aarch64.so.1" ] || { echo "the packages could not be unpacked into $folder" >&2; exit 1; }
rm -rf "$part/apt" "$folder" && mv "$part" "$folder"
