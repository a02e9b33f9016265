package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/sys"
)

// cache saves the last good text of a source on disk, without its Secrets, which must not be on any
// disk. Nevertheless only the owner may read the file.
type cache struct {
	dir string // empty: no cache
	key string // the digest of the source's identity
	// readOnly is set if the cache is never written.
	readOnly bool
}

// entry is the content of a cache file. An identity, such as a URL, may contain secrets, so the file
// has only its digest. It is called url because URLs were the first sources with a cache.
type entry struct {
	Key string `json:"url"`
	Validators
	Read time.Time `json:"read"`
	Body []byte    `json:"body"`
}

// entryOf returns what is cached of a good text. If Secrets are removed from it, so are its
// validators: the cached text is then not the one of the server, and the next response must be a
// complete one instead of a 304.
func entryOf(g *good) entry {
	e := entry{Validators: g.validators, Read: g.read, Body: g.text}
	if slices.ContainsFunc(g.Objects, func(o manifest.Object) bool { return o.Secret != nil }) {
		e.Validators, e.Body = Validators{}, withoutSecrets(g.text)
	}
	return e
}

// withoutSecrets returns a good text without its Secrets, as canonical JSON. The remaining documents
// have the same meaning as before.
func withoutSecrets(body []byte) []byte {
	isSecret := func(value any) bool {
		object, _ := value.(map[string]any)
		return object["kind"] == manifest.KindSecret
	}
	docs, _ := decode.Parse(body)
	var out []byte
	for _, d := range docs {
		if isSecret(d.Value) {
			continue
		}
		if object, ok := d.Value.(map[string]any); ok && object["kind"] == "List" {
			items, _ := object["items"].([]any)
			object["items"] = slices.DeleteFunc(items, isSecret)
		}
		out = append(append(out, decode.Canonical(d.Value)...), '\n')
	}
	if len(out) == 0 {
		return []byte(`{"apiVersion":"v1","kind":"List","items":[]}`)
	}
	return out
}

func (c cache) path() string { return filepath.Join(c.dir, c.key+".json") }

// read reads the cache file; nil if there is none.
func (c cache) read() (*entry, error) {
	if c.dir == "" {
		return nil, nil
	}
	data, err := os.ReadFile(c.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading cached manifests: %w", err)
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("reading cached manifests: %s: %w", c.path(), err)
	}
	if e.Key != c.key {
		return nil, fmt.Errorf("reading cached manifests: %s belongs to another source", c.path())
	}
	return &e, nil
}

// write replaces the cache file atomically: after a crash it has the old or the new content.
func (c cache) write(e entry) error {
	if c.dir == "" || c.readOnly {
		return nil
	}
	e.Key = c.key
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("caching manifests: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("caching manifests: %w", err)
	}
	if err := sys.WriteDurable(c.path(), data, 0o600); err != nil {
		return fmt.Errorf("caching manifests: %w", err)
	}
	return nil
}

// PruneCache removes from dir the cached texts of all sources but those with these identities, and
// the temporary files of interrupted writes. A dir that does not exist is no error.
func PruneCache(dir string, identities ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing cached manifests: %w", err)
	}
	keep := map[string]bool{}
	for _, identity := range identities {
		keep[filepath.Base(cache{key: manifest.Digest([]byte(identity))}.path())] = true
	}
	var failures []error
	for _, e := range entries {
		if !keep[e.Name()] && !e.IsDir() && strings.Contains(e.Name(), ".json") {
			failures = append(failures, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("removing cached manifests: %w", err)
	}
	return nil
}
