#!/usr/bin/env bash
# Runs every attack, that is every test that docs/security.md names: those with containers on podrun's own containerd,
# with bin/podrun. FLAGS="-v" are for go test. Left out are those whose name begins a target of its own; with CORE=1 also
# what make test runs.
# security.sh pattern: prints what matches their names.
set -euo pipefail
cd "$(dirname "$0")/.."

# make crash, make fuzz and make e2e run these on all containerds, for as long as they take.
others='TestCrashMatrix|TestConformance|Fuzz[A-Za-z0-9]+'
# Their own program runs in containers too.
export CGO_ENABLED=${CGO_ENABLED:-0}
names=$(grep -oE '`(Test|Fuzz)[A-Za-z0-9]+`' docs/security.md | tr -d '`' | sort -u | grep -vxE "$others")
pattern="^($(paste -sd'|' <<<"$names"))\$"
[ "${1-}" != pattern ] || { echo "$pattern"; exit; }
[ "$(id -u)" = 0 ] || { echo "the attacks need root: sudo make security" >&2; exit 1; }
packages=()
[ "${CORE-}" = 1 ] || for dir in $(grep -rlE --include='*_test.go' "^func ($(paste -sd'|' <<<"$names"))\(" cmd internal | xargs -n1 dirname | sort -u); do
	packages+=("./$dir")
done
echo "== attacks: $(wc -w <<<"$names") tests"
[ ${#packages[@]} = 0 ] || go test -vet=off -tags ownshim "${packages[@]}" -count=1 -parallel 6 -timeout 10m -run "$pattern" ${FLAGS-}
PODRUN_E2E=1 PODRUN_E2E_CONTAINERD=embedded go test -vet=off ./e2e -count=1 -parallel 6 -timeout 10m -run "$pattern" ${FLAGS-}
