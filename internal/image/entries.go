package image

import (
	"cmp"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
)

// match is an entry of a config.json that applies to a repository.
type match struct {
	entry
	key, path string
	// wild reports that the host has wildcards.
	wild bool
}

// find returns the entries for a repository on a registry's host. Those that name the host come
// before those with wildcards, then longer paths before shorter ones, then earlier texts before later
// ones, as in the kubelet (pkg/credentialprovider/keyring.go). Unlike there, an entry's path stands
// for whole components of the repository's.
func find(auths []map[string]entry, host, repository string) []match {
	host, repository = canonical(host), strings.Trim(repository, "/")+"/"
	shorter := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	var found []match
	for _, one := range auths {
		for _, key := range slices.SortedFunc(maps.Keys(one), shorter) {
			of, under := target(key)
			if one[key] == (entry{}) || !covers(of, host) || under != "" && !strings.HasPrefix(repository, under+"/") {
				continue
			}
			found = append(found, match{entry: one[key], key: key, path: under, wild: of != host})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int {
		if a.wild != b.wild {
			if b.wild {
				return -1
			}
			return 1
		}
		return cmp.Compare(len(b.path), len(a.path))
	})
	return found
}

// target returns the host and the path that an entry's key names. A key may be a URL, and may name the
// version of the registry's API before the path.
func target(key string) (host, under string) {
	for _, scheme := range []string{"https://", "http://"} {
		if rest, found := strings.CutPrefix(key, scheme); found {
			key = rest
			break
		}
	}
	host, under, _ = strings.Cut(key, "/")
	for _, version := range []string{"v1/", "v2/"} {
		if rest, found := strings.CutPrefix(under, version); found {
			under = rest
			break
		}
	}
	return canonical(host), strings.Trim(under, "/")
}

// canonical returns one name for all that Docker Hub has.
func canonical(host string) string {
	if isDockerHub(host) {
		return "docker.io"
	}
	return host
}

// covers reports whether an entry's host, whose labels may have wildcards, stands for a registry's.
func covers(pattern, host string) bool {
	if pattern == host {
		return true
	}
	name, port := splitPort(host)
	patternName, patternPort := splitPort(pattern)
	labels, globs := strings.Split(name, "."), strings.Split(patternName, ".")
	return port == patternPort && slices.EqualFunc(globs, labels, func(glob, label string) bool {
		same, err := path.Match(glob, label)
		return same && err == nil
	})
}

func splitPort(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}
