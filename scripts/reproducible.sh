#!/usr/bin/env bash
# Builds a commit (HEAD) in two clones whose paths, time zones and umasks differ, and checks that the binary, the SBOM and the
# Debian package are the same bytes, name no path of the machine, and say the commit, and that the package has the SBOM
# of its binary. Compiled packages are shared.
# Usage: scripts/reproducible.sh [COMMIT]
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git rev-parse --verify "${1:-HEAD}^{commit}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/reproducible.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# build CLONE: clones and builds, and lists what came out.
build() {
	git clone -q --no-checkout . "$1"
	git -C "$1" -c advice.detachedHead=false checkout -q "$commit"
	make -s -C "$1" deb >"$1.log" 2>&1 || { cat "$1.log" >&2; exit 1; }
	(cd "$1/bin" && sha256sum podrun podrun.cdx.json podrun_*.deb) >"$1.sums"
}
one=$dir/one two=$dir/the-second/of-another/length
mkdir -p "${two%/*}"
# The last second of a month: in the second time zone the next one has begun.
SOURCE_DATE_EPOCH=$(date -u -d '2026-11-30 23:59:59' +%s)
export SOURCE_DATE_EPOCH
(umask 022 && export TZ=UTC && build "$one")
(umask 077 && export TZ=Pacific/Chatham && build "$two")

cat "$one.sums"
if ! diff "$one.sums" "$two.sums" >&2; then
	echo "two builds of $commit differ; diffoscope tells where" >&2
	exit 1
fi
if grep -qaF "$dir" "$one/bin/podrun" "$one/bin/podrun.cdx.json"; then
	echo "the directory of the build is in what was built" >&2
	exit 1
fi
# It must find no containerd that the machine has.
said=$("$one/bin/podrun" version -o json --containerd-address "$dir/none")
if ! grep -qF "\"commit\": \"$commit\"" <<<"$said" || ! grep -qF '"modified": false' <<<"$said"; then
	printf 'podrun does not say that it is of commit %s:\n%s\n' "$commit" "$said" >&2
	exit 1
fi
# The package has the SBOM of the binary in it: with its hash, and each module that Go says that it consists of.
dpkg-deb -x "$one"/bin/podrun_*.deb "$dir/package"
sbom=$dir/package/usr/share/doc/podrun/podrun.cdx.json
read -r hash _ < <(sha256sum "$dir/package/usr/bin/podrun")
grep -qF "$hash" "$sbom" || { echo "the package's SBOM is not its binary's" >&2; exit 1; }
modules=$(go version -m "$dir/package/usr/bin/podrun" | awk '$1 == "dep" { print "pkg:golang/" $2 "@" $3 }')
[ "$(wc -l <<<"$modules")" -gt 50 ] || { echo "the binary names hardly a module: $modules" >&2; exit 1; }
while read -r module; do
	grep -qF "\"$module?" "$sbom" || { echo "the package's SBOM lacks $module" >&2; exit 1; }
done <<<"$modules"
echo "two builds of $commit are the same bytes"
