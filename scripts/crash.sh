#!/usr/bin/env bash
# Runs random rounds of the crash matrix with bin/podrun on each kind of containerd. Each run prints its
# seed; PODRUN_E2E_SEED=… repeats it, PODRUN_CRASH_ROUND=N only its round N.
# Usage: scripts/crash.sh ROUNDS [KIND…]    (embedded stock debian; embedded by default)
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "the crash matrix needs root: sudo make crash" >&2; exit 1; }
rounds=${1:?usage: $0 ROUNDS [KIND…]}
shift
[ $# -gt 0 ] || set -- embedded

export PODRUN_E2E=1 PODRUN_CRASH_ROUNDS=$rounds
for kind in "$@"; do
	echo "== crash matrix: $kind, $rounds rounds"
	[ "$kind" = embedded ] || scripts/containerd.sh "$kind" >/dev/null
	PODRUN_E2E_CONTAINERD=$kind go test ./e2e -count=1 -timeout 60m -parallel 6 -v -run '^TestCrashMatrix$' ${FLAGS-}
done
