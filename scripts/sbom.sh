#!/usr/bin/env bash
# Writes bin/podrun.cdx.json, the CycloneDX SBOM of bin/podrun: the modules that went into it, with their checksums, and
# the binary's own. Neither a time nor a random number is in it, so that two builds of a commit have the same.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
# The tool is a module of its own, with the checksums of all that it consists of: podrun does not depend on it, and a
# new release changes nothing. The SBOM has the tool's own hash, so it is built in one way only.
# The version is what podrun version shows: Go has written it into the binary, unless it was built without git.
version=$(go version -m bin/podrun | awk '$1 == "mod" { print $3; exit }')
case $version in '' | '(devel)') version=v$(scripts/version.sh | sed 's/^v//') ;; esac
CGO_ENABLED=0 GOFLAGS=-trimpath go -C packaging/sbom tool cyclonedx-gomod \
	bin -json -std -noserial -notimestamp -version "$version" -output "$root/bin/podrun.cdx.json" "$root/bin/podrun"
