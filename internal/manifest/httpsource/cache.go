package httpsource

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
)

// cache saves the last good response of a URL on disk, without its Secrets, which must not be on
// any disk. Nevertheless only the owner may read the file.
type cache struct {
	dir string // empty: no cache
	key string // the digest of the URL
	// readOnly is set if the cache is never written.
	readOnly bool
}

// kept is the content of a cache file. URLs may contain secrets, so the file has only their
// digests.
type kept struct {
	URL string `json:"url"`
	marks
	Read time.Time `json:"read"`
	Body []byte    `json:"body"`
}

// keep returns what is cached of a good response. If Secrets are removed from it, so are its
// validators: the cached body is then not the one of the server, and the next response must be a
// complete one instead of a 304.
func keep(good *goodSet) kept {
	k := kept{marks: good.marks, Read: good.read, Body: good.body}
	if slices.ContainsFunc(good.Objects, func(o manifest.Object) bool { return o.Secret != nil }) {
		k.marks, k.Body = marks{}, withoutSecrets(good.body)
	}
	return k
}

// withoutSecrets returns a good body without its Secrets, as canonical JSON. The remaining
// documents have the same meaning as before.
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
func (c cache) read() (*kept, error) {
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
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("reading cached manifests: %s: %w", c.path(), err)
	}
	if k.URL != c.key {
		return nil, fmt.Errorf("reading cached manifests: %s belongs to another URL", c.path())
	}
	return &k, nil
}

// write replaces the cache file atomically: after a crash it has the old or the new content.
func (c cache) write(k kept) error {
	if c.dir == "" || c.readOnly {
		return nil
	}
	k.URL = c.key
	data, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("caching manifests: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("caching manifests: %w", err)
	}
	if err := replace(c.path(), data); err != nil {
		return fmt.Errorf("caching manifests: %w", err)
	}
	return nil
}

// PruneCache removes the cached responses of all URLs but these from dir, and the temporary files
// of interrupted writes. A dir that does not exist is no error.
func PruneCache(dir string, urls ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing cached manifests: %w", err)
	}
	keep := map[string]bool{}
	for _, url := range urls {
		keep[filepath.Base(cache{key: manifest.Digest([]byte(url))}.path())] = true
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

// replace replaces a file atomically and syncs file and directory, so that the new content survives
// a loss of power, which a rename alone does not ensure.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // without effect after the rename
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
