#!/usr/bin/env bash
# Writes anew what is generated: golden files and docs (by the tests that check them) and deps.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests that own golden files have an -update flag.
packages=$(grep -rlE 'flag\.Bool\("update"' --include='*_test.go' . | xargs -r -n1 dirname | sort -u)
for package in $packages; do
	go test "$package" -count=1 -update >/dev/null
done

# The modules that podrun is made of: a new one is a visible line in review.
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}' . | LC_ALL=C sort -u >deps.txt
