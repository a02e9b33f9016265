#!/usr/bin/env bash
# Runs every fuzz target for a while. Usage: scripts/fuzz.sh DURATION
set -euo pipefail
cd "$(dirname "$0")/.."
grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort -u | while IFS=: read -r file func; do
	name=${func#func }
	echo "== $name in $(dirname "$file")"
	go test "$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$1"
done
