package pod

import (
	"errors"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ServerName checks the name or address of a server in a manifest and returns it as mount programs
// expect it before a colon and a path: an IPv6 address is in brackets. It returns an error for
// anything else, so that the result can never be taken for a command-line option.
func ServerName(text string) (string, error) {
	inner, bracketed := strings.CutPrefix(text, "[")
	if bracketed {
		var closed bool
		if inner, closed = strings.CutSuffix(inner, "]"); !closed {
			return "", errServerName
		}
	}
	addr, err := netip.ParseAddr(inner)
	switch {
	case err == nil && addr.Is4() && !bracketed:
		return addr.String(), nil
	case err == nil && addr.Is6() && isZone(addr.Zone()):
		return "[" + addr.String() + "]", nil
	case bracketed || err == nil:
		return "", errServerName
	}
	// Names in a private network may contain underscores.
	name := strings.ReplaceAll(strings.TrimSuffix(strings.ToLower(text), "."), "_", "-")
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", errServerName
	}
	return text, nil
}

var errServerName = errors.New("must be a host name, as nfs.example.com, an IPv4 or an IPv6 address")

// plain are the characters that are allowed in a zone.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// isZone reports whether the zone of an IPv6 address is empty or can be the name of a network
// interface.
func isZone(zone string) bool {
	return len(zone) < 16 && strings.IndexFunc(zone, func(r rune) bool {
		return !strings.ContainsRune(plain, r)
	}) < 0
}
