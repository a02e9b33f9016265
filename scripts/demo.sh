#!/usr/bin/env bash
# Shows podrun's main job on this machine: a job that succeeds, a web pod that is killed and comes back. It
# uses directories of its own and podrun's own containerd, ends by itself and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "the demo needs root: sudo make demo" >&2; exit 1; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/podrun-demo.XXXXXX")
# Flags may be given by environment; that keeps the commands below short.
export PODRUN_ROOT_DIR=$dir/root PODRUN_RUN_DIR=$dir/run PODRUN_LOG_DIR=$dir/log PODRUN_LOG_LINKS_DIR=$dir/containers PODRUN_CONTAINERD_ADDRESS=embedded PODRUN_NODE_NAME=demo
serve=

say() { printf '\n== %s\n' "$*"; }
podrun() {
	printf '$ podrun %s\n' "$*"
	bin/podrun "$@"
}
fail() {
	echo "demo failed: $*" >&2
	exit 1
}

# traces: what is there of this demo, a line each.
traces() {
	local pid line
	for pid in /proc/[0-9]*; do
		line=$( (tr '\0' ' ' <"$pid/cmdline") 2>/dev/null) || continue
		case $line in *"$dir"*) echo "process ${pid#/proc/}: $line" ;; esac
	done
	awk -v dir="$dir" 'index($2, dir) == 1 { print "mount " $2 }' /proc/mounts
	[ -z "$bridge" ] || [ ! -e "/sys/class/net/$bridge" ] || echo "bridge $bridge"
	find /sys/fs/cgroup -depth -type d -name "pod$uid" 2>/dev/null | sed 's/^/cgroup /'
}
bridge=
uid=none

finish() {
	local code=$?
	trap - EXIT
	[ -z "$serve" ] || { kill "$serve" && wait "$serve"; } 2>/dev/null || true
	if [ "$code" != 0 ]; then
		cat "$dir/serve.log" >&2 2>/dev/null || true
		bin/podrun down --all >/dev/null 2>&1 || true
	fi
	# Podrun's containerd ends by itself when nothing needs it.
	for _ in $(seq 100); do
		[ -n "$(traces)" ] || break
		sleep 0.1
	done
	if [ -n "$(traces)" ]; then
		echo "left behind:" >&2
		traces >&2
		exit 1
	fi
	rm -rf "$dir"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

say "Build an image of busybox, without a registry, and load it"
go run ./internal/test/testimage/mkimage -o "$dir/box.tar" -ref podrun.example/box:1
podrun images load "$dir/box.tar"

say "podrun once: run a job, print its output, exit with its result"
cat >"$dir/job.yaml" <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: podrun.example/box:1
    command: [sh, -c, 'echo "hello from a job, on $(hostname)"']
YAML
cat "$dir/job.yaml"
code=0
podrun once --manifests "$dir/job.yaml" --logs all --rm || code=$?
echo "exit code $code"
[ "$code" = 0 ] || fail "the job should have succeeded"

say "podrun serve: keep the pods of a directory running"
mkdir "$dir/pods"
printf '$ podrun serve --manifests %s &\n' "$dir/pods"
bin/podrun serve --manifests "$dir/pods" >"$dir/serve.log" 2>&1 &
serve=$!

say "Drop a manifest into the directory: a web server, ready when it answers"
cat >"$dir/web.yaml" <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: httpd
    image: podrun.example/box:1
    command: [sh, -c]
    args:
    - |
      mkdir /www
      echo "hello from the web pod, run $(cat /proc/sys/kernel/random/uuid)" | tee /www/index.html
      exec httpd -f -p 80 -h /www
YAML
cat "$dir/web.yaml"
began=$(date +%s%N)
mv "$dir/web.yaml" "$dir/pods/"

# page: what the web pod answers now; fails while it does not.
page() {
	timeout 1 bash -c 'exec 3<>"/dev/tcp/$0/80" && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n1 <&3' "$ip" 2>/dev/null
}
ms() { echo $((($(date +%s%N) - began) / 1000000)); }
field() { bin/podrun get pod web -o "jsonpath={$1}" 2>/dev/null; }

ip=
for _ in $(seq 300); do
	[ -n "$ip" ] || ip=$(field .status.podIP) || true
	[ -z "$ip" ] || ! first=$(page) || break
	sleep 0.02
done
[ -n "${first-}" ] || fail "the web pod does not answer"
echo "http://$ip/ answered after $(ms) ms: $first"
podrun get pods -o wide

say "Kill its process: kill -9, as a crash or the kernel would"
bridge=$(sed -n 's/.*"bridge": *"\([^"]*\)".*/\1/p' "$dir/run/network/bridge.json")
uid=$(field .metadata.uid)
id=$(field '.status.containerStatuses[0].containerID')
pid=$(grep -lF "/${id#*://}" /proc/[0-9]*/cgroup | head -n1 | cut -d/ -f3)
echo "\$ kill -9 $pid    # $(tr '\0' ' ' <"/proc/$pid/cmdline")"
began=$(date +%s%N)
kill -9 "$pid"
again=
for _ in $(seq 500); do
	again=$(page) || true
	[ -z "$again" ] || [ "$again" = "$first" ] || break
	sleep 0.005
done
took=$(ms)
[ -n "$again" ] && [ "$again" != "$first" ] || fail "the web pod did not come back"
echo "a new container answers $took ms after the kill: $again"

say "What podrun says: one restart, and the logs of both runs"
for _ in $(seq 100); do
	[ "$(field '.status.containerStatuses[0].restartCount')" != 1 ] || break
	sleep 0.05
done
podrun get pods
podrun logs --previous web
podrun logs web

say "Stop podrun: the pod runs on. Then take everything down"
kill "$serve"
wait "$serve" || true
serve=
page >/dev/null || fail "the pod should have gone on without podrun"
echo "http://$ip/ still answers"
podrun down --all

say "Nothing is left: no process, mount, network link or cgroup"
