#!/usr/bin/env bash
# Tests podrun, from its package in bin, on whole machines: Debian in qemu. FLAGS="-v" are for go test.
# Usage: scripts/vm.sh "DEBIAN…" [RUN]    (12 13; RUN is a test's name)
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "building a Debian for virtual machines needs root: sudo make vm" >&2; exit 1; }
run=${2:-.}
# go test passes if no test has the name. Of TestName/case it lists TestName.
if ! PODRUN_VM='' go test ./vm -list "${run%%/*}" | grep '^Test' >/dev/null; then
	echo "no test of ./vm has a name like $run" >&2
	exit 1
fi

deb=$(ls -t bin/podrun_*.deb | head -1)
if [ "${RECORD-}" = 1 ]; then
	mkdir -p vm/testdata/platforms
	export PODRUN_VM_RECORD=$PWD/vm/testdata/platforms
fi
export PODRUN_VM=1 PODRUN_VM_DEB=$PWD/$deb CGO_ENABLED=${CGO_ENABLED:-0}
for debian in $1; do
	begin=$SECONDS
	PODRUN_VM_IMAGE=$(scripts/vmroot.sh "$debian")
	export PODRUN_VM_IMAGE
	echo "== virtual machines: Debian $debian, ready after $((SECONDS - begin)) s"
	go test -vet=off ./vm -count=1 -timeout 60m -v -run "$run" ${FLAGS-}
done
if [ "${RECORD-}" = 1 ]; then
	PODRUN_VM='' PODRUN_UPDATE=1 go test ./vm -count=1 -run '^TestPlatforms$'
fi
