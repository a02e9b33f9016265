#!/usr/bin/env bash
# Builds the container image from bin/podrun and its SBOM, which it makes, with whatever builder is there.
# Usage: scripts/image.sh IMAGE [BASE]    ENGINE="podman --root …" chooses and tunes the builder
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/sbom.sh
# podrun's files have the commit's time; what is below them is the base's and Debian's.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
chmod 755 bin/podrun
chmod 644 bin/podrun.cdx.json
touch -d "@$SOURCE_DATE_EPOCH" bin/podrun bin/podrun.cdx.json
args=(-t "$1" -f Dockerfile --build-arg BINARY=prebuilt --label "org.opencontainers.image.revision=$(git rev-parse HEAD)")
[ -z "${2-}" ] || args+=(--build-arg "BASE=$2")

engine=${ENGINE-}
if [ -z "$engine" ]; then
	if docker info >/dev/null 2>&1; then
		engine=docker
	elif command -v podman >/dev/null; then
		engine=podman
	elif command -v buildah >/dev/null; then
		engine=buildah
	else
		echo "please install docker, podman or buildah (on Debian: apt-get install podman)" >&2
		exit 1
	fi
fi
# Podman and buildah in a chroot need no cgroups and no runtime for the build.
case ${engine%% *} in
docker) args+=(--build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH") ;;
*) args+=(--isolation chroot --network host --timestamp "$SOURCE_DATE_EPOCH") ;;
esac
# shellcheck disable=SC2086 # $ENGINE may carry flags
$engine build "${args[@]}" .
