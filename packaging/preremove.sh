#!/bin/sh
# Before it is gone for good, podrun stops, and its pods run on until the package is purged, until a reboot, or until
# podrun down --all before that. An upgrade restarts it afterwards.
set -e
saved=$DPKG_ROOT/usr/lib/podrun
keep() {
	ln -fL "$1" "$saved/$2" 2>/dev/null || cp "$1" "$saved/$2"
}
if [ "$1" = remove ]; then
	if [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
		systemctl disable --now podrun.service || true
	fi
	# A purge stops the pods, when these are gone: /usr/bin/podrun, the settings, which dpkg removes before it asks for
	# the purge, and runc, which apt may remove before that.
	mkdir -p -m 0755 "$saved"
	keep "$DPKG_ROOT/usr/bin/podrun" podrun
	rm -f "$saved/settings"
	if [ -r "$DPKG_ROOT/etc/default/podrun" ]; then
		chmod 0600 "$DPKG_ROOT/etc/default/podrun"
		keep "$DPKG_ROOT/etc/default/podrun" settings
	fi
	# A removal may be what frees a full disk.
	if runc=$(command -v runc) && ! { keep "$runc" runc && ln -sf "$runc" "$saved/runc.path"; }; then
		echo "runc cannot be kept: purge podrun before runc is removed" >&2
	fi
	echo "podrun's pods run on; apt-get purge podrun stops them" >&2
fi
