#!/usr/bin/env bash
# Prints the version of the checked out commit for packages: its tag, else its time and hash, so that a later commit's
# is greater. After a tag, the number of commits since and the hash follow it.
set -euo pipefail
cd "$(dirname "$0")/.."
# The hash's length must not depend on what else a clone has, nor the time on where it is built or was committed.
version=$(git describe --tags --match 'v*' --abbrev=12 2>/dev/null | sed -E 's/-([0-9]+)-(g[0-9a-f]{12})$/+\1.\2/' || true)
time=$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S)
echo "${VERSION:-${version:-0.0.0-$time.g$(git rev-parse --short=12 HEAD)}}"
