#!/usr/bin/env bash
# release.sh BUILD VERSION: what is published of a version, in BUILD/release/: packages, tarballs, wheel, a list of what is in
# them (SBOM), release notes and digests. `./dev release` calls this. It publishes nothing itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf '[release] error: %s\n' "$*" >&2; exit 1; }
build=$1 version=${2:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "say which version, such as 0.1.0"

# One version everywhere, and a tag on a tree without changes.
found=$(sed -n 's/^project(macaw VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ "$found" = "$version" ] || die "CMakeLists.txt says version $found; write $version there and commit"
grep -qx "version: $version" CITATION.cff || die "CITATION.cff has another version; write $version there and commit"
grep -qE "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
  die "CHANGELOG.md has no heading \"## $version (YYYY-MM-DD)\"; give its section the day of the release"
[ -z "$(git status --porcelain)" ] || die "the tree has changes: commit them, or set them aside"
tagged=$(git rev-parse -q --verify "v$version^{commit}") ||
  die "there is no tag v$version: git tag -a v$version -m \"Macaw $version\""
[ "$tagged" = "$(git rev-parse HEAD)" ] || die "v$version is another commit than this one: git checkout v$version"

./dev package torch
./dev wheel
release=$build/release
rm -rf "$release" && mkdir -p "$release"
cp "$build"/packages/* "$build"/wheels/macaw-"$version"-*.whl "$release/"
python3 deploy/sbom.py "$build" "$version" >"$release/macaw-$version.cdx.json"
# The section of this version, without its heading.
awk -v heading="## $version " 'index($0, "## ") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md >"$release/notes.md"
(cd "$release" && sha256sum -- * >SHA256SUMS)
ls -l "$release"
