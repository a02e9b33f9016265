#!/usr/bin/env bash
# Runs the end-to-end tests with bin/podrun on each containerd, and podrun within a container.
# Usage: scripts/e2e.sh [KIND…]    (embedded stock debian container; all by default)
# FLAGS="-run …" are for go test. CORE=1: on a stock and on Debian's containerd, only what depends on it; less of it on the
# stock one, whose version is that of podrun's own; on podrun's own, what make security does not run.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "end-to-end tests need root: sudo make e2e" >&2; exit 1; }
[ $# -gt 0 ] || set -- embedded stock debian container

debian='^Test(Exec|Logs|LogsFollow|LogsOfAPod|LogRotates|Attach|Volumes|Limits|MemoryLimitKills|ImageDefaults|ImageVolumes|Once(Succeeds|Fails|Interrupted|InOrder|Terminated|WithoutRunc)'
debian+='|Images(Commands|GoFromAFullDisk|WakePods)|ImagePullSecrets|RegistryConfig|Pull(Stops|Progress|ThroughFaults)|DockerRegistry'
debian+='|InitContainers|SidecarOfAJob|TerminationMessage|ResourcesChangeInPlace|ResizePolicy|RestartCommand|Probes|Hooks|OwnUsers|Devices'
debian+='|Killed.*|AShimThatHangs|KillAnywhere|Serve.*|CrashLoop|StopIsGraceful|Down.*|FreshRootFilesystem|Reboot|ShareProcessNamespace|RuntimeClass'
debian+='|TwoRootsInOneNamespace|SecretsOf.*|PodNetwork|HostPort|HostNetwork|Restricted|Privileged|LocalhostSeccomp|RuntimeIsNotLedAstray|Stats|Copy|Rollback)$'
stock='^Test(Exec|Logs|LogRotates|Limits|MemoryLimitKills|ImageVolumes|Once(Succeeds|Fails|Interrupted)|ImagesCommands|Pull(Stops|Progress)'
stock+='|InitContainers|RestartCommand|Hooks|OwnUsers|Killed.*|Serve.*|CrashLoop|StopIsGraceful|DownBesideServe|FreshRootFilesystem'
stock+='|PodNetwork|HostPort|Privileged|Stats|Copy)$'
declare -A core=([debian]=$debian [stock]=$stock)

# The tests' own program runs in containers too.
export PODRUN_E2E=1 CGO_ENABLED=${CGO_ENABLED:-0}
# A real collector of logs.
[ "$*" = container ] || go build -C hack/collectors -trimpath -ldflags='-s -w' -o ../../bin/promtail github.com/grafana/loki/v3/clients/cmd/promtail
for kind in "$@"; do
	echo "== end to end: $kind"
	case $kind in
	container) scripts/deps.sh podman mmdebstrap && PODRUN_E2E_ENGINE=podman go test -vet=off ./e2e -count=1 -timeout 10m -run '^TestInAContainer$' ${FLAGS-} ;;
	*)
		[ "$kind" = embedded ] || scripts/containerd.sh "$kind" >/dev/null
		# What judges the pages; only they need it.
		[ "$kind" != embedded ] || PODRUN_E2E_AXE=$(scripts/axe.sh) || echo "axe-core cannot be fetched: the pages are not judged" >&2
		export PODRUN_E2E_AXE=${PODRUN_E2E_AXE-}
		part=()
		[ "${CORE-}" != 1 ] || case $kind in
		embedded) part=(-skip "$(scripts/security.sh pattern)") ;;
		*) part=(-run "${core[$kind]}") ;;
		esac
		PODRUN_E2E_CONTAINERD=$kind go test -vet=off ./e2e -count=1 -timeout 30m -parallel 6 "${part[@]}" ${FLAGS-}
		;;
	esac
done
