#!/bin/sh
# Before it is gone for good, podrun stops, and its pods run on until the package is purged, until a reboot, or until
# podrun down --all before that. An upgrade restarts it afterwards.
set -e
if [ "$1" = remove ]; then
	if [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
		systemctl disable --now podrun.service || true
	fi
	# A purge stops the pods, when /usr/bin/podrun is gone.
	mkdir -p -m 0755 "$DPKG_ROOT/usr/lib/podrun"
	ln -f "$DPKG_ROOT/usr/bin/podrun" "$DPKG_ROOT/usr/lib/podrun/podrun" 2>/dev/null ||
		cp "$DPKG_ROOT/usr/bin/podrun" "$DPKG_ROOT/usr/lib/podrun/podrun"
	echo "podrun's pods run on; apt-get purge podrun stops them" >&2
fi
