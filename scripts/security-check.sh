#!/usr/bin/env bash
# security-check.sh [NAME...]: takes the defence of each patch in testdata/attacks (or of those named) out of a copy of
# the tree, one at a time, and checks that every test that the patch names then fails, and that it passes before.
# What a test does without its defence is kept from the machine: of its files it can change only those of the copy and
# /run, its mounts and processes end with it, and its memory is limited.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
[ "$(id -u)" = 0 ] || { echo "the attacks need root: sudo make security-check" >&2; exit 1; }
export CGO_ENABLED=${CGO_ENABLED:-0} PODRUN_E2E=1 PODRUN_E2E_CONTAINERD=embedded
tree=$(mktemp -d /tmp/sc.XXXX) # short: paths of sockets are limited
trap 'rm -rf "$tree"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 755 "$tree" # tests run programs there as another user
declare -A passed

copy() { # copy DIR: copies the tree.
	rm -rf "$tree/$1" "$tree/$1-tests" && mkdir "$tree/$1" "$tree/$1-tests"
	git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$tree/$1"
}

build() { # build DIR PACKAGE TO: builds the package's tests of a copy.
	cd "$tree/$1" && { [ "$2" != ./e2e ] || make -s build; } && go test -c -vet=off -ldflags "-s -w" -o "$3" "$2"
}

attack() { # attack DIR PACKAGE TEST: runs a test of a copy.
	local binary=$tree/$1-tests/${2//\//-}
	[ -x "$binary" ] || (build "$1" "$2" "$binary") >"$tree/out" 2>&1 || { cat "$tree/out" >&2; echo "$2 cannot be built" >&2; exit 1; }
	rm -rf "$tree/t" && mkdir "$tree/t"
	TMPDIR=$tree/t unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash -c '
		set -e
		mount --bind "$0" "$0"
		mount --bind /run /run
		mount -o remount,bind,ro /
		ulimit -v $((8 << 20))
		cd "$1"
		shift
		"$@" || exit # not exec: bash reaps what others leave
	' "$tree" "$tree/$1/$2" "$binary" -test.run "^$3\$" -test.timeout 5m -test.v </dev/null >"$tree/out" 2>&1
}

patches=("${@/#/testdata/attacks/}")
[ $# -gt 0 ] || patches=(testdata/attacks/*.patch)
copy whole
code=0
for patch in "${patches[@]}"; do
	patch=$root/${patch%.patch}.patch
	copy src
	(cd "$tree/src" && git apply "$patch")
	while read -r _ test package; do
		found="NOT FOUND: it passes without the defence"
		if [ -z "${passed[$test]-}" ] && ! { attack whole "$package" "$test" && grep -q "^--- PASS: $test " "$tree/out"; }; then
			found="NOT FOUND: it does not pass with the defence"
		elif passed[$test]=1 && ! attack src "$package" "$test"; then
			found=$(grep -m1 -E '_test\.go:[0-9]+: |^panic: |^fatal error: ' "$tree/out" | sed -E "s|^ +||; s|$tree/t/||g" | cut -c1-160) || true
			found=${found:+found: $found}
		fi
		echo "$(basename "$patch" .patch): $test: ${found:=NOT FOUND: it fails without saying why}"
		[[ $found != NOT* ]] || { tail -5 "$tree/out"; code=1; }
	done < <(grep '^Test: ' "$patch")
done
exit "$code"
