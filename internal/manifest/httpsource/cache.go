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

// cache keeps a URL's last good answer on disk, but for its Secrets, which no disk may have. Only its owner
// may read it all the same.
type cache struct {
	dir string // empty: no cache
	key string // the digest of the URL
	// readOnly: nothing is written.
	readOnly bool
}

// kept is what a cache file has. URLs are in it as digests, for they may have secrets.
type kept struct {
	URL string `json:"url"`
	marks
	Read time.Time `json:"read"`
	Body []byte    `json:"body"`
}

// keep is what is kept of a good answer. Without its Secrets it is another: the next answer must come whole.
func keep(good *goodSet) kept {
	k := kept{marks: good.marks, Read: good.read, Body: good.body}
	if slices.ContainsFunc(good.Objects, func(o manifest.Object) bool { return o.Secret != nil }) {
		k.marks, k.Body = marks{}, withoutSecrets(good.body)
	}
	return k
}

// withoutSecrets is a good body without its Secrets, in another form: what is left means the same.
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

// read returns nil if there is nothing.
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
		return nil, fmt.Errorf("reading cached manifests: %s is of another URL", c.path())
	}
	return &k, nil
}

// write replaces what is kept; after a crash there is the old or the new.
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

// PruneCache removes from dir what is kept of other URLs than these, and what an interrupted write left.
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

// replace writes a file so that it outlives a loss of power, which a rename alone does not grant.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing is there after the rename
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
