#!/usr/bin/env bash
# simulate.sh SEEDS [FROM]: runs the simulation on that many seeds, from FROM (0) on, on all processors.
# simulate.sh seed N: repeats one seed and prints what happens in it.
# SIMULATE_TREE is the tree whose code is run; by default this one. Fails when a rule is broken.
set -euo pipefail
cd "${SIMULATE_TREE:-$(dirname "$0")/..}"
dir=$(mktemp -d /tmp/simulate.XXXX)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Its files are small and many.
export TMPDIR=$dir
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
	TMPDIR=$(mktemp -d /dev/shm/simulate.XXXX)
	trap 'rm -rf "$dir" "$TMPDIR"' EXIT
fi
go test -c -o "$dir/simulate" ./internal/agent
cd internal/agent
# On one processor goroutines that wake at one instant go on in the same order each time, as a rule.
export GOMAXPROCS=1 GOGC=800
if [ "$1" = seed ]; then
	"$dir/simulate" -test.run 'TestSimulate$' -test.v -from="$2" -seeds=1 -trace
	exit
fi
shards=$(nproc)
each=$((($1 + shards - 1) / shards))
pids=()
for i in $(seq 0 $((shards - 1))); do
	"$dir/simulate" -test.timeout 24h -test.run 'TestSimulate$' -test.v -from=$((${2:-0} + i * each)) -seeds=$each >"$dir/$i" 2>&1 &
	pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
grep -hvE '^(=== |    --- PASS|--- PASS|PASS)' "$dir"/[0-9]* || true
[ "$code" = 0 ] && echo "simulated $((each * shards)) seeds: no rule was broken"
exit "$code"
