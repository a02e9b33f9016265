#!/usr/bin/env bash
# Makes a small Debian root file system, as an image's base where there is no registry, and prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PODRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podrun}
mkdir -p "$cache"
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
tar=$cache/base-$suite.tar
if [ ! -e "$tar" ]; then
	scripts/deps.sh mmdebstrap
	echo "making a Debian $suite base" >&2
	mmdebstrap --quiet --variant=minbase "$suite" "$tar.new.tar" >&2
	mv "$tar.new.tar" "$tar"
fi
echo "$tar"
