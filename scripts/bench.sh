#!/usr/bin/env bash
# Measures podrun against containerd alone and prints a table; UPDATE=1 writes it into docs/benchmarks.md.
# Usage: scripts/bench.sh [FLAG…]    (go run ./bench -help)
set -euo pipefail
cd "$(dirname "$0")/.."
args=()
if [ "${UPDATE-}" = 1 ]; then
	mkdir -p docs
	args+=(-markdown docs/benchmarks.md)
fi
mkdir -p bin
go build -o bin/bench ./bench
bin/bench "${args[@]}" "$@"
bin/bench -relist "${args[@]}"
