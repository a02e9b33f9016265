#!/usr/bin/env bash
# Installs from Debian what is missing of the named tools; says what to install where it cannot.
# Usage: scripts/deps.sh TOOL…    (runc busybox gcc podman docker-registry prometheus chromium …)
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# have TOOL: it is there and of the right kind.
have() {
	local path
	[ "$1" != cni-plugins ] || { test -x /usr/lib/cni/bridge; return; }
	path=$(command -v "$1") || return 1
	# A busybox for images must be static: it is alone in them. A dynamic one names its loader up front.
	[ "$1" != busybox ] || ! head -c 4096 "$path" | grep -qa '/ld-'
}

missing=()
for tool in "$@"; do
	have "$tool" && continue
	case $tool in
	busybox) missing+=(busybox-static) ;;
	xmllint) missing+=(libxml2-utils) ;;
	promtool) missing+=(prometheus) ;;
	gcc) missing+=(gcc libc6-dev) ;;
	qemu-system-x86_64) missing+=(qemu-system-x86) ;;
	mke2fs) missing+=(e2fsprogs) ;;
	ip) missing+=(iproute2) ;;
	nft) missing+=(nftables) ;;
	iptables-nft) missing+=(iptables) ;;
	cni-plugins) missing+=(containernetworking-plugins) ;;
	*) missing+=("$tool") ;;
	esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	echo "please install: ${missing[*]} (on Debian, as root: apt-get install ${missing[*]})" >&2
	exit 1
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -qq -y --no-install-recommends "${missing[@]}" </dev/null; }
# The package lists may be absent or old.
install >/dev/null 2>&1 || { apt-get update -qq && install >/dev/null; }
