#!/usr/bin/env bash
# simulate.sh SEEDS [FROM]: runs the simulation on that many seeds, from FROM (0) on, on all processors.
# simulate.sh seed N: repeats one seed and prints what happens in it.
# FIRST=1 ends soon after the first broken rule, and does not look whether seeds repeat.
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
# A seed repeats exactly only if Go's runtime decides nothing by itself: within a bubble of testing/synctest what it
# draws for select, maps and timers follows from the bubble's time, and on one processor nobody is interrupted. Go has
# no switch for that; go build's -overlay puts a few changed lines in the place of its own. A select also counts: two cases
# that stay ready would be taken in the same order for ever, and net/http's wait for a response that was called off would
# not end.
runtime=$(go env GOROOT)/src/runtime
change() { # change FILE EXPRESSION
	sed -E "$2" "$dir/$1" >"$dir/changed"
	! cmp -s "$dir/$1" "$dir/changed" || { echo "simulate.sh: $(go version) has no such line in $1: $2" >&2; exit 1; }
	mv "$dir/changed" "$dir/$1"
}
cp "$runtime/rand.go" "$runtime/proc.go" "$runtime/select.go" "$dir"
change rand.go 's/^func cheaprand\(\) uint32 \{$/&\n\tif getg().bubble != nil {\n\t\treturn uint32(ofBubble())\n\t}/'
change rand.go 's/^func rand\(\) uint64 \{$/&\n\tif getg().bubble != nil {\n\t\treturn ofBubble()\n\t}/'
change rand.go 's/globalRand.state.Init\(\*seed\)/globalRand.state.Init([32]byte{1})/' # hashes are the same in each process
change proc.go 's/^func retake\(now int64\) uint32 \{$/&\n\tif len(allp) == 1 {\n\t\treturn 0\n\t}/'
change select.go 's/^\t\tj := (cheaprandn\(uint32\(norder \+ 1\)\))$/\t\tj := selectOrder(\1, norder+1)/'
cat >>"$dir/select.go" <<'END'

var selectBubble, selects uint64

func selectOrder(j uint32, n int) uint32 {
	b := getg().bubble
	if b == nil {
		return j
	}
	if selectBubble != b.id {
		selectBubble, selects = b.id, 0
	}
	selects++
	return uint32((uint64(j) + selects) % uint64(n))
}
END
cat >>"$dir/rand.go" <<'END'

//go:nosplit
func ofBubble() uint64 {
	x := uint64(getg().bubble.now) * 0xa0761d6478bd642f
	high, low := math.Mul64(x, x^0xe7037ed1a0b428db)
	return high ^ low
}
END
printf '{"Replace":{"%s":"%s","%s":"%s","%s":"%s"}}' "$runtime/rand.go" "$dir/rand.go" "$runtime/proc.go" "$dir/proc.go" \
	"$runtime/select.go" "$dir/select.go" >"$dir/overlay"
go test -c -vet=off -ldflags "-s -w" -overlay "$dir/overlay" -o "$dir/simulate" ./internal/agent
cd internal/agent
export GOMAXPROCS=1 GOGC=off GODEBUG=adaptivestackstart=1
if [ "$1" = seed ]; then
	"$dir/simulate" -test.run 'TestSimulate$' -test.v -from="$2" -seeds=1 -trace
	exit
fi
shards=$(nproc)
each=$((($1 + shards - 1) / shards))
begin=${2:-0} end=$((${2:-0} + each * shards)) code=0
[ -z "${FIRST-}" ] || each=20
while [ "$begin" -lt "$end" ]; do
	pids=()
	for i in $(seq 0 $((shards - 1))); do
		"$dir/simulate" -test.timeout 24h -test.run 'TestSimulate$' -test.v -from=$((begin + i * each)) -seeds=$each >"$dir/$i" 2>&1 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || code=1; done
	begin=$((begin + each * shards))
	[ -z "${FIRST-}" ] || [ "$code" = 0 ] || break
done
if [ -z "${FIRST-}" ]; then
	"$dir/simulate" -test.run 'TestSimulateRepeats$' -from="${2:-0}" -twice=10 >"$dir/repeats" 2>&1 || { cat "$dir/repeats"; code=1; }
fi
grep -hvE '^(=== |    --- PASS|--- PASS|PASS)' "$dir"/[0-9]* || true
[ "$code" = 0 ] && echo "simulated $((end - ${2:-0})) seeds: no rule was broken"
exit "$code"
