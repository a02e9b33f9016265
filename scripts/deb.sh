#!/usr/bin/env bash
# Makes the Debian package bin/podrun_VERSION_ARCH.deb of bin/podrun: with man pages, completions, the systemd unit
# and the examples.
set -euo pipefail
cd "$(dirname "$0")/.."

# Pinned: a new release must not change the package.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.3

version=$(git describe --tags --match 'v*' 2>/dev/null || true)
export VERSION=${VERSION:-${version:-0.0.0-$(git log -1 --format=%cd.%h --date=format:%Y%m%d)}}
export ARCH=${ARCH:-$(go env GOARCH)}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf bin/package
mkdir -p bin/package
go run ./packaging/pages bin/package/pages
gzip -9n bin/package/pages/man1/*
sed 's|/usr/local/bin/|/usr/bin/|; /^# A sample/d' podrun.service >bin/package/podrun.service
go run "$nfpm" package --config packaging/nfpm.yaml --packager deb --target bin/
