#!/bin/sh
# A purge stops the pods. What they have on the disk stays: volumes are the administrator's.
set -e
saved=$DPKG_ROOT/usr/lib/podrun

# settings exports podrun's variables as the unit had them. Only systemd reads such a file: a shell would run a value
# of several words. No value is evaluated, and quotes around it are removed. It fails if a line has more of systemd's
# syntax than that: with a guess, podrun would look for its pods in the wrong place.
settings() {
	umask 077
	tr -d '\r' <"$1" | sed 's/^[[:blank:]]*//; s/[[:blank:]]*$//; s/[[:blank:]]*=[[:blank:]]*/=/' >"$saved/lines" || return 1
	while read -r line || [ -n "$line" ]; do
		case $line in
		[#\;]*) continue ;;
		*\\) return 1 ;; # it goes on in the next line
		PODRUN_*) ;;
		*) continue ;;
		esac
		name=${line%%=*} value=${line#*=}
		case $value in
		\"*\") value=${value#\"} value=${value%\"} ;;
		\'*\') value=${value#\'} value=${value%\'} ;;
		esac
		case $name in "$line" | *[!A-Z0-9_]*) continue ;; esac
		case $value in
		*[\"\'\\]*)
			case $name in PODRUN_*_DIR | PODRUN_CONTAINERD_*) return 1 ;; esac
			continue # nothing of the others is needed
			;;
		esac
		export "$name=$value"
	done <"$saved/lines"
}

# below: it is an absolute path below the package's root.
below() { case $1 in "$DPKG_ROOT"/*) ;; *) return 1 ;; esac }

# recorded exports where podrun has run its pods by its own records, if there are any: a drop-in of the unit may have set
# it, and not the settings. The root directory's record has the run directory; that one's has the boot, the namespace,
# the address of containerd and the root directory.
recorded() {
	run='' boot='' namespace='' address='' root=''
	[ ! -f "$PODRUN_ROOT_DIR/run-dir" ] || read -r run <"$PODRUN_ROOT_DIR/run-dir" || true
	if below "$run" && [ -f "$run/place" ]; then
		PODRUN_RUN_DIR=$run
	fi
	[ -f "$PODRUN_RUN_DIR/place" ] || return 0
	{ read -r boot && read -r namespace && read -r address && read -r root; } <"$PODRUN_RUN_DIR/place" || return 0
	if below "$root" && [ -d "$root/pods" ]; then
		PODRUN_ROOT_DIR=$root
	fi
	if [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ]; then # else nothing runs there any more
		export PODRUN_CONTAINERD_NAMESPACE="$namespace" PODRUN_CONTAINERD_ADDRESS="$address"
	fi
}

# lend puts runc back to where it was until this script ends: the pods' shims search it there.
lend() {
	lent=$(readlink "$saved/runc.path")
	trap 'rm -f "$lent"' EXIT
	trap 'exit 1' HUP INT TERM
	ln -sf "$saved/runc" "$lent"
}

if [ "$1" = purge ] && [ -x "$saved/podrun" ]; then
	if [ -r "$saved/settings" ] && ! settings "$saved/settings"; then
		echo "the former /etc/default/podrun, $saved/settings, cannot be read here: make its PODRUN_ lines plain" \
			"(NAME=value) and purge again, or remove $saved first: podrun's pods run on then" >&2
		exit 1
	fi
	# Below another root these are not the machine's own, whose pods run on.
	export PODRUN_ROOT_DIR="$DPKG_ROOT${PODRUN_ROOT_DIR:-/var/lib/podrun}"
	export PODRUN_RUN_DIR="$DPKG_ROOT${PODRUN_RUN_DIR:-/run/podrun}"
	export PODRUN_LOG_DIR="$DPKG_ROOT${PODRUN_LOG_DIR:-/var/log/pods}"
	recorded
	if [ -n "$(ls -A "$PODRUN_ROOT_DIR/pods" 2>/dev/null)" ]; then
		if [ -x "$saved/runc" ] && ! command -v runc >/dev/null; then
			lend
		fi
		if ! "$saved/podrun" down --all; then
			echo "podrun's pods could not be stopped; purge again, or remove $saved first: they run on then. The command" \
				"podrun is $saved/podrun now, with --root-dir $PODRUN_ROOT_DIR --run-dir $PODRUN_RUN_DIR" >&2
			exit 1
		fi
	fi
	rm -rf "$saved"
	[ ! -d "$PODRUN_ROOT_DIR" ] || echo "volumes, images and records of podrun are left in $PODRUN_ROOT_DIR" >&2
fi
if [ "$1" = remove ] && [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
	systemctl daemon-reload || true
fi
