#!/bin/sh
# A purge stops the pods. What they have on the disk stays: volumes are the administrator's.
set -e
saved=$DPKG_ROOT/usr/lib/podrun
if [ "$1" = purge ] && [ -x "$saved/podrun" ]; then
	# As the unit had it. dpkg removes the file after this.
	if [ -r "$DPKG_ROOT/etc/default/podrun" ]; then
		set -a
		. "$DPKG_ROOT/etc/default/podrun"
		set +a
	fi
	root=${PODRUN_ROOT_DIR:-$DPKG_ROOT/var/lib/podrun}
	if [ -n "$(ls -A "$root/pods" 2>/dev/null)" ] && ! "$saved/podrun" down --all; then
		echo "podrun's pods could not be stopped; purge again, or run $saved/podrun down --all" >&2
		exit 1
	fi
	rm -f "$saved/podrun"
	rmdir "$saved" 2>/dev/null || true
	[ ! -d "$root" ] || echo "volumes, images and records of podrun are left in $root" >&2
fi
if [ "$1" = remove ] && [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
	systemctl daemon-reload || true
fi
