#!/usr/bin/env bash
# Builds the container image from bin/podrun with whatever builder is there.
# Usage: scripts/image.sh IMAGE [BASE]    ENGINE="podman --root …" chooses and tunes the builder
set -euo pipefail
cd "$(dirname "$0")/.."
args=(-t "$1" -f Dockerfile)
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
[ "${engine%% *}" = docker ] || args+=(--isolation chroot --network host)
# shellcheck disable=SC2086 # $ENGINE may carry flags
$engine build "${args[@]}" .
