#!/usr/bin/env bash
# Measures podrun against containerd alone and prints a table; UPDATE=1 writes it into docs/benchmarks.md.
# Usage: scripts/bench.sh [FLAG…]    (go run ./hack/bench -help)
set -euo pipefail
cd "$(dirname "$0")/.."
args=()
if [ "${UPDATE-}" = 1 ]; then
	mkdir -p docs
	args+=(-markdown docs/benchmarks.md)
fi
mkdir -p bin
go build -o bin/bench ./hack/bench
bin/bench "${args[@]}" "$@"
bin/bench -jobs "${args[@]}"
bin/bench -relist "${args[@]}"
bin/bench -idle-pods "${args[@]}"

# Nodes with few and with many pods.
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
# The rows come in any order.
measure() {
	sed -n 's/^ *\(| .*\)/\1/p' | {
		cat >"$rows.all"
		head -n 2 "$rows.all"
		tail -n +3 "$rows.all" | sort -t '|' -k 2n
		rm "$rows.all"
	} | tee "$rows"
}
PODRUN_E2E=1 PODRUN_SCALE=${SCALE:-1 10 50 200 500} go test ./e2e -run '^TestScale$' -count=1 -timeout 60m -parallel 1 -v | measure
grep -q '^| 1 |' "$rows" || { echo "the scale was not measured" >&2; exit 1; }
if [ "${UPDATE-}" = 1 ]; then bin/bench -rows "$rows" "${args[@]}"; fi
# The page of 500 pods in a browser.
PODRUN_E2E=1 PODRUN_SCALE=1 go test ./e2e -run '^TestPageScale$' -count=1 -timeout 20m -v | sed -n 's/^ *\(| .*\)/\1/p'

# What is podrun's own, in virtual time.
PODRUN_SCALE_FAKE=${SCALE_FAKE:-500 5000} go test ./internal/agent -run '^TestScale$' -count=1 -timeout 20m -v | measure

# Probes: a command in a container against runc alone and the client's own means, and what podrun asks by itself, with
# the server that answers.
echo
go test -tags ownshim ./internal/probe ./internal/runtime/containerd -run '^$' -bench '^Benchmark(Ask|Exec)$' -benchtime 200x | awk '
	/^BenchmarkExec\// { split($1, name, /[\/-]/); exec[name[2]] = $5 }
	/^BenchmarkAsk/ { split($1, name, /[\/-]/); asked[name[2]] = $5 }
	END {
		if (!exec["runc"] || !exec["client"] || !exec["podrun"] || !("http" in asked) || !("tcp" in asked) || !("grpc" in asked)) {
			print "the probes were not measured" >"/dev/stderr"
			exit 1
		}
		print "| probe | floor, CPU ms | podrun, CPU ms | ratio | wanted |\n| --- | --- | --- | --- | --- |"
		printf "| exec, `runc exec` alone | %.1f | %.1f | **%.2f** | ≤ 1.10 |\n", exec["runc"], exec["podrun"], exec["podrun"] / exec["runc"]
		printf "| exec, containerd'"'"'s client | %.1f | %.1f | **%.2f** | |\n", exec["client"], exec["podrun"], exec["podrun"] / exec["client"]
		printf "| HTTP | | %.2f | | |\n| TCP | | %.2f | | |\n| gRPC | | %.2f | | |\n", asked["http"], asked["tcp"], asked["grpc"]
	}' | tee "$rows"
if [ "${UPDATE-}" = 1 ]; then bin/bench -rows "$rows" -probes "${args[@]}"; fi
