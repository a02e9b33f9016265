#!/bin/sh
# A purge stops the pods. What they have on the disk stays: volumes are the administrator's.
set -e
saved=$DPKG_ROOT/usr/lib/podrun

# settings exports podrun's variables as the unit had them. Only systemd reads such a file: a shell would run a value
# of several words. No value is evaluated, and quotes around it are removed.
settings() {
	while read -r line || [ -n "$line" ]; do
		name=${line%%=*} value=${line#*=}
		case $name in
		"$line" | *[!A-Z0-9_]*) continue ;;
		PODRUN_*) ;;
		*) continue ;;
		esac
		case $value in
		\"*\") value=${value#\"} value=${value%\"} ;;
		\'*\') value=${value#\'} value=${value%\'} ;;
		esac
		export "$name=$value"
	done <"$1"
}

# lend puts runc back to where it was until this script ends: the pods' shims search it there.
lend() {
	lent=$(cat "$saved/runc.path")
	trap 'rm -f "$lent"' EXIT
	trap 'exit 1' HUP INT TERM
	ln -sf "$saved/runc" "$lent"
}

if [ "$1" = purge ] && [ -x "$saved/podrun" ]; then
	[ ! -r "$saved/settings" ] || settings "$saved/settings"
	# Below another root these are not the machine's own, whose pods run on.
	export PODRUN_ROOT_DIR="$DPKG_ROOT${PODRUN_ROOT_DIR:-/var/lib/podrun}"
	export PODRUN_RUN_DIR="$DPKG_ROOT${PODRUN_RUN_DIR:-/run/podrun}"
	export PODRUN_LOG_DIR="$DPKG_ROOT${PODRUN_LOG_DIR:-/var/log/pods}"
	if [ -n "$(ls -A "$PODRUN_ROOT_DIR/pods" 2>/dev/null)" ]; then
		if [ -x "$saved/runc" ] && ! command -v runc >/dev/null; then
			lend
		fi
		if ! "$saved/podrun" down --all; then
			echo "podrun's pods could not be stopped; purge again, or remove $saved first: they run on then" >&2
			exit 1
		fi
	fi
	rm -rf "$saved"
	[ ! -d "$PODRUN_ROOT_DIR" ] || echo "volumes, images and records of podrun are left in $PODRUN_ROOT_DIR" >&2
fi
if [ "$1" = remove ] && [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
	systemctl daemon-reload || true
fi
