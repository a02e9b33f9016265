#!/usr/bin/env bash
# Compares podrun's verdicts with those of Kubernetes' own code, which is a module of its own, so that
# podrun never depends on it. MANIFESTS_DIR: where to write the manifests that differ.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

go build -o "$bin/verdict" ./internal/manifest/verdict
# Vetting would analyse all of Kubernetes.
(cd hack/oracle && go test -vet=off . && go build -o "$bin/oracle" .)
"$bin/oracle" -podrun "$bin/verdict" -files 'testdata/manifests/*alid-*' -doc docs/oracle.md ${MANIFESTS_DIR:+-write "$MANIFESTS_DIR"}
