#!/usr/bin/env bash
# Provides a containerd for tests and prints the directory that holds it and its shim. It starts nothing.
# Usage: scripts/containerd.sh stock|debian
#   stock   the release whose client podrun uses, built through Go's module proxy
#   debian  Debian's package, unpacked but not installed
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PODRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podrun}
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

case ${1-} in
stock)
	version=$(go list -m -f '{{.Version}}' github.com/containerd/containerd/v2)
	dir=$cache/containerd-$version
	if [ ! -x "$dir/containerd-shim-runc-v2" ] || [ ! -x "$dir/ctr" ]; then
		echo "building containerd $version" >&2
		GOBIN=$dir CGO_ENABLED=0 go install \
			"github.com/containerd/containerd/v2/cmd/containerd@$version" "github.com/containerd/containerd/v2/cmd/ctr@$version" \
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@$version"
	fi
	;;
debian)
	command -v apt-get >/dev/null || { echo "Debian's containerd needs apt-get" >&2; exit 1; }
	version() { apt-cache policy containerd | awk '/Candidate:/ { print $2 }'; }
	[ -n "$(version)" ] || apt-get update -qq >&2
	dir=$cache/containerd-debian-$(version)
	if [ ! -x "$dir/containerd" ]; then
		echo "fetching Debian's containerd $(version)" >&2
		tmp=$(mktemp -d)
		trap 'rm -rf "$tmp"' EXIT
		chmod 755 "$tmp"
		download() { (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root containerd); }
		download >&2 || { apt-get update -qq >&2 && download >&2; }
		dpkg-deb -x "$tmp"/containerd_*.deb "$tmp/x"
		mkdir -p "$dir"
		cp "$tmp"/x/usr/bin/containerd-shim-runc-v2 "$tmp"/x/usr/bin/containerd "$dir"/
	fi
	;;
*)
	echo "usage: $0 stock|debian" >&2
	exit 2
	;;
esac
echo "$dir"
