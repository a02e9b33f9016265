#!/usr/bin/env bash
# Makes the Debian package bin/podrun_VERSION_ARCH.deb of bin/podrun: with man pages, completions, the systemd unit,
# the SBOM, the documents and the examples.
set -euo pipefail
cd "$(dirname "$0")/.."

# Pinned: a new release must not change the package.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.3

VERSION=$(scripts/version.sh)
export VERSION
export ARCH=${ARCH:-$(go env GOARCH)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# Modes and times are the package's, not those of whoever cloned or built: the man pages say the month.
export TZ=UTC0
umask 022
rm -rf bin/package bin/podrun_*_"$ARCH".deb # docs/start.md: apt install ./bin/podrun_*.deb
mkdir -p bin/package/doc/packaging
cp -R README.md CONTRIBUTING.md LICENSE bin/podrun.cdx.json docs examples bin/package/doc/
for file in openrc s6-run; do
	sed 's|/usr/local/bin/|/usr/bin/|' packaging/$file >bin/package/doc/packaging/$file
done
go run ./hack/pages bin/package/pages
gzip -9n bin/package/pages/man1/*
sed 's|/usr/local/bin/|/usr/bin/|; /^# A sample/d' podrun.service >bin/package/podrun.service
chmod -R u=rwX,go=rX bin/package
find bin/package -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
touch -d "@$SOURCE_DATE_EPOCH" bin/podrun
go run "$nfpm" package --config packaging/nfpm.yaml --packager deb --target bin/
