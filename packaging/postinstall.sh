#!/bin/sh
# Nothing is started: that is the administrator's to say, with systemctl enable --now podrun. A podrun that runs
# already is replaced; its pods run on meanwhile.
set -e
# What a removal kept for a purge is of an earlier version now.
rm -rf "$DPKG_ROOT/usr/lib/podrun"
if [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
	systemctl daemon-reload || true
	systemctl try-restart podrun.service || true
fi
