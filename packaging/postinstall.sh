#!/bin/sh
# Nothing is started: that is the administrator's to say, with systemctl enable --now podrun. A podrun that runs
# already is replaced; its pods run on meanwhile.
set -e
# What a removal kept for a purge is of an earlier version now.
rm -rf "$DPKG_ROOT/usr/lib/podrun"
# The settings may have a password. dpkg gives the file the mode that it had.
if [ "$1" = configure ] && [ -n "$2" ] && dpkg --compare-versions "$2" lt 0.0.0~20261130 &&
	[ -f "$DPKG_ROOT/etc/default/podrun" ]; then
	chmod go-rwx "$DPKG_ROOT/etc/default/podrun"
fi
if [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
	systemctl daemon-reload || true
	# What the package says of links, of inotify and of neighbours counts now, not from the next boot on.
	/usr/lib/systemd/systemd-sysctl --prefix=/fs/inotify/max_user_instances \
		--prefix=/net/ipv4/neigh/default --prefix=/net/ipv6/neigh/default || true
	if systemctl -q is-active systemd-networkd.service; then networkctl reload || true; fi
	systemctl try-reload-or-restart NetworkManager.service || true
	systemctl try-restart podrun.service || true
fi
