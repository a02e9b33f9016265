#!/bin/sh
# Before it is gone for good, podrun stops, and its pods run on until podrun down --all or a reboot. An upgrade
# restarts it afterwards.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now podrun.service || true
fi
