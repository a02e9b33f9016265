package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Logins are a pod's own: the texts of docker's config.json, or of its older form without "auths". Helpers
// that they name are not run: they are the machine's to choose.
type Logins [][]byte

// For is Credentials.For for the first of them that knows the host; found is false where none does. One that
// cannot be read is left out, as in Kubernetes.
func (l Logins) For(host, repository string) (user, secret string, found bool) {
	for _, text := range l {
		var known config
		if json.Unmarshal(text, &known) != nil {
			continue
		}
		if known.Auths == nil && json.Unmarshal(text, &known.Auths) != nil {
			continue
		}
		user, secret, err := config{Auths: known.Auths}.of(host, repository)
		if err == nil && user+secret != "" {
			return user, secret, true
		}
	}
	return "", "", false
}

// Key tells these logins from others, so that nobody gets what another's login fetched while it is fetched.
func (l Logins) Key() string {
	if len(l) == 0 {
		return ""
	}
	h := sha256.New()
	for _, text := range l {
		one := sha256.Sum256(text)
		h.Write(one[:])
	}
	return " " + hex.EncodeToString(h.Sum(nil))
}
