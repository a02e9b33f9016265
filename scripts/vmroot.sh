#!/usr/bin/env bash
# Provides a Debian for virtual machines and prints the directory that holds it: its disk.img (ext4), vmlinuz and initrd.
# It starts nothing. A change of this file makes a new one.
# Usage: scripts/vmroot.sh 12|13
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

case ${1-} in
12) suite=bookworm ;;
13) suite=trixie ;;
*)
	echo "usage: $0 12|13" >&2
	exit 2
	;;
esac
# What podrun needs and recommends, Debian's containerd, and what the tests use.
packages=systemd,systemd-sysv,dbus,libpam-systemd,udev,kmod,linux-image-cloud-amd64,runc,containerd,ca-certificates
packages+=,busybox-static,iproute2,nftables,apparmor,procps,e2fsprogs,xfsprogs,btrfs-progs,ufw,firewalld
packages+=,nfs-kernel-server,selinux-policy-default,policycoreutils,selinux-utils

cache=${PODRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podrun}
mkdir -p "$cache"
dir=$cache/vm-debian-$1-$(cat "$0" | sha256sum | head -c 12)
exec 9>"$cache/lock-vm"
flock 9
if [ ! -f "$dir/disk.img" ]; then
	scripts/deps.sh mmdebstrap mke2fs
	echo "building Debian $1" >&2
	tmp=$(mktemp -d)
	# mmdebstrap mounts the machine's /dev and /sys in the root. They are in a mount namespace of their own, which ends
	# with its processes, so that nothing outside is ever reached through them, also when this script is interrupted.
	trap 'rm -rf --one-file-system "$tmp"' EXIT
	chmod 755 "$tmp"
	root=$tmp/root
	unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
		mmdebstrap --quiet --variant=minbase --include="$packages" --format=directory \
		"$suite" "$root" >&2
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/{doc,man,locale}/*
	echo podrun-vm >"$root/etc/hostname"
	echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
	# The tests start what they need.
	mkdir -p "$root/vm"
	ln -sf /dev/null "$root/etc/systemd/system/containerd.service"
	for unit in systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
		e2scrub_all.timer e2scrub_reap.service fstrim.timer getty.target firewalld.service ufw.service nfs-server.service; do
		ln -sf /dev/null "$root/etc/systemd/system/$unit"
	done
	# The agent of the tests is on the second disk. It depends on neither D-Bus nor a network.
	cat >"$root/etc/systemd/system/vm-agent.service" <<-'UNIT'
		[Unit]
		Description=Agent of podrun's tests in virtual machines
		[Service]
		ExecStartPre=/bin/mount /dev/vdb /vm
		Environment=PODRUN_VM_AGENT=1 HOME=/root
		ExecStart=/vm/agent
		Restart=always
		[Install]
		WantedBy=multi-user.target
	UNIT
	mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
	ln -s ../vm-agent.service "$root/etc/systemd/system/multi-user.target.wants/vm-agent.service"
	mkdir -p "$tmp/out"
	cp "$root"/boot/vmlinuz-* "$tmp/out/vmlinuz"
	cp "$root"/boot/initrd.img-* "$tmp/out/initrd"
	rm -rf "$root"/boot/*
	mke2fs -q -t ext4 -d "$root" "$tmp/out/disk.img" 3G >&2
	rm -rf "$dir.new"
	cp -r --sparse=always "$tmp/out" "$dir.new"
	mv -T "$dir.new" "$dir"
fi
echo "$dir"
