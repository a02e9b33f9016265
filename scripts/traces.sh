#!/usr/bin/env bash
# Prints what podrun and its tests could leave on a machine, a line each: mounts, network links and
# namespaces, firewall tables, cgroups, processes, sockets and temporary directories. CI compares before
# and after.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
{
	awk '{ print "mount " $2 }' /proc/mounts
	for link in /sys/class/net/*; do echo "link ${link##*/}"; done
	find /run/netns /var/run/netns -mindepth 1 2>/dev/null | sed 's/^/netns /' || true
	find /sys/fs/cgroup -type d \( -path '*/podrun/*/pod*' -o -path '*/podrun/pod*' -o -path '*/libpod*' \) 2>/dev/null | sed 's/^/cgroup /' || true
	find /run/containerd /run/podrun /var/lib/podrun /var/log/pods 2>/dev/null | sed 's/^/file /' || true
	find /tmp -mindepth 1 -maxdepth 1 \( -name 'p[ebmnc][0-9]*' -o -name 'tc[0-9]*' -o -name 'podrun-*' -o -name 'Test*' \) | sed 's/^/temporary /'
	for proc in /proc/[0-9]*; do
		name=$( (tr '\0' ' ' <"$proc/cmdline") 2>/dev/null) || continue
		case $name in *bin/podrun* | *containerd* | *conmon*)  echo "process ${proc#/proc/} $name" ;; esac
	done
} | LC_ALL=C sort -u
