#!/usr/bin/env bash
# Fetches axe-core, which judges pages by WCAG, from npm's registry, and prints the path of its program. It is not part of
# podrun: only tests run it, in a browser.
set -euo pipefail
cache=${PODRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podrun}
version=4.14.1
sum=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
file=$cache/axe-$version.js
if [ ! -s "$file" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	"$(dirname "$0")/deps.sh" curl
	curl -sSfL --retry 3 --max-time 120 -o "$tmp/axe.tgz" "https://registry.npmjs.org/axe-core/-/axe-core-$version.tgz"
	echo "$sum  $tmp/axe.tgz" | sha512sum -c --quiet - >&2
	tar -xzf "$tmp/axe.tgz" -C "$tmp" package/axe.min.js
	mv "$tmp/package/axe.min.js" "$file"
fi
echo "$file"
