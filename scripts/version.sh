#!/usr/bin/env bash
# Prints the version of the checked out commit for packages: its tag, else its date and hash.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(git describe --tags --match 'v*' --abbrev=12 2>/dev/null || true)
# The hash's length must not depend on what else a clone has.
echo "${VERSION:-${version:-0.0.0-$(git log -1 --format=%cd --date=format:%Y%m%d).$(git rev-parse --short=12 HEAD)}}"
