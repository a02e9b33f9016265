#!/usr/bin/env bash
# simulate-check.sh SEEDS: puts each known defect back into a copy of the tree, one at a time, and checks that the
# simulation finds it within that many seeds.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tree=$(mktemp -d /tmp/simulate-check.XXXX)
trap 'rm -rf "$tree"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
code=0
for patch in "$root"/internal/agent/testdata/defects/*.patch; do
	name=$(basename "$patch" .patch)
	rm -rf "$tree/src" && mkdir "$tree/src"
	git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$tree/src"
	patch -d "$tree/src" -p1 -s <"$patch"
	found=
	if ! FIRST=1 SIMULATE_TREE=$tree/src scripts/simulate.sh "$1" >"$tree/out" 2>&1; then
		found=$(grep -m1 -oE 'make simulate SEED=[0-9]+' "$tree/out" || true)
	fi
	if [ -n "$found" ]; then
		echo "$name: found by $found: $(grep -E 'simulate_test.go:[0-9]+: ' "$tree/out" | grep -vm1 digest | sed -E 's/^ *simulate_test.go:[0-9]+: //' | cut -c1-160)"
	else
		echo "$name: NOT FOUND within $1 seeds"
		tail -5 "$tree/out"
		code=1
	fi
done
exit "$code"
