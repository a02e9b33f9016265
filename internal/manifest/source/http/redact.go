package http

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// masked replaces text that must not be shown.
const masked = "***"

// MaskURL returns a URL in the form in which it may be shown: without fragment, and with *** for
// user, password, and parts of path and query that look like secrets. raw need not be a valid URL.
func MaskURL(raw string) string {
	raw, _, _ = strings.Cut(raw, "#")
	raw, query, hasQuery := strings.Cut(raw, "?")
	scheme, rest, ok := strings.Cut(raw, "://")
	if scheme += "://"; !ok {
		scheme, rest = "", raw
	}
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	// Both user and password are masked, because a token may also be the user name.
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = masked + authority[at:]
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if secretValue(segment) {
			segments[i] = masked
		}
	}
	raw = scheme + authority + strings.Join(segments, "/")
	if !hasQuery {
		return raw
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, named := strings.Cut(part, "=")
		switch {
		case named && value != "" && (secretName(name) || secretValue(value)):
			parts[i] = name + "=" + masked
		case !named && secretValue(name):
			parts[i] = masked
		}
	}
	return raw + "?" + strings.Join(parts, "&")
}

// anyURL matches a URL in a text.
var anyURL = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"']+`)

// maskText masks the URLs in a text, such as the error of another package.
func maskText(text string) string {
	return anyURL.ReplaceAllStringFunc(text, MaskURL)
}

// secretName reports whether a query parameter of this name is likely to have a secret value.
func secretName(name string) bool {
	name = strings.ToLower(name)
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return slices.Contains([]string{"code", "pass", "pw", "sid"}, name) ||
		slices.ContainsFunc([]string{"token", "secret", "passw", "pwd", "key", "sig", "auth", "cred", "session", "jwt"},
			func(part string) bool { return strings.Contains(name, part) })
}

// secretValue reports whether a value looks random, like a token and unlike the name of a machine
// or a path.
func secretValue(value string) bool {
	if plain, err := url.QueryUnescape(value); err == nil {
		value = plain
	}
	isToken := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-+/=", r))
	}
	for _, run := range strings.FieldsFunc(value, func(r rune) bool { return !isToken(r) }) {
		run = strings.ReplaceAll(run, "-", "") // UUIDs
		upper := strings.ContainsFunc(run, unicode.IsUpper)
		lower := strings.ContainsFunc(run, unicode.IsLower)
		digit := strings.ContainsFunc(run, unicode.IsDigit)
		hexadecimal := !strings.ContainsFunc(run, func(r rune) bool {
			return !strings.ContainsRune("0123456789abcdefABCDEF", r)
		})
		switch n := len(run); {
		case n >= 16 && hexadecimal && digit && (upper || lower),
			n >= 20 && upper && lower && digit,
			n >= 32 && digit && (upper || lower):
			return true
		}
	}
	return false
}
