package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Logins are a pod's own credentials: texts of docker config.json files, or of the older format
// without "auths". Credential helpers that they name are not run, because only the machine's
// administrator may choose programs to run.
type Logins [][]byte

// candidates returns the credentials of all texts for a repository on a registry's host. Texts and
// entries that cannot be parsed are skipped.
func (l Logins) candidates(host, repository string) []candidate {
	var auths []map[string]entry
	for _, text := range l {
		var known config
		if json.Unmarshal(text, &known) != nil {
			continue
		}
		if known.Auths == nil && json.Unmarshal(text, &known.Auths) != nil {
			continue
		}
		auths = append(auths, known.Auths)
	}
	var all []candidate
	for _, m := range find(auths, host, repository) {
		if user, secret, err := m.credentials(m.key); err == nil && user+secret != "" {
			all = append(all, candidate{user: user, secret: secret})
		}
	}
	return all
}

// Key identifies these logins in the names of pulls, so that pods with other logins do not share a
// pull in progress.
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
