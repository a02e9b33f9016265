#!/usr/bin/env bash
# Prints what podrun and its tests could leave on a machine, a line each: processes and mounts that name DIR,
# and the machine's network links, pods' cgroups and podrun's default directories. CI compares before and
# after.
# Usage: scripts/traces.sh DIR
set -euo pipefail
dir=$1
{
	awk -v dir="$dir/" 'index($2, dir) == 1 { print "mount " $2 }' /proc/mounts
	for proc in /proc/[0-9]*; do
		name=$( (tr '\0' ' ' <"$proc/cmdline") 2>/dev/null) || continue
		case $name in *"$dir/"*) echo "process ${proc#/proc/} $name" ;; esac
	done
	for link in /sys/class/net/*; do echo "link ${link##*/}"; done
	find /sys/fs/cgroup -type d \( -path '*/podrun/*/pod*' -o -path '*/podrun/pod*' -o -path '*/libpod*' \) 2>/dev/null | sed 's/^/cgroup /' || true
	# The sockets of shims that a test killed stay, and containerd makes an empty directory when it cleans up
	# after such a shim; CI clears them away by itself.
	find /run/containerd -mindepth 1 -not -path '/run/containerd/s*' -not \( -type d -empty -path '/run/containerd/runc/*' \) -not -path /run/containerd/runc 2>/dev/null | sed 's/^/file /' || true
	find /run/podrun /var/lib/podrun /var/log/pods 2>/dev/null | sed 's/^/file /' || true
} | LC_ALL=C sort -u
