package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// loader is the part of the runtime that loading needs.
type loader interface {
	Load(ctx context.Context, archive io.Reader) ([]string, error)
	Resolve(ctx context.Context, ref string) (pod.Image, error)
}

// loaded is what an archive had when it was loaded, and what tells that it is still the same.
type loaded struct {
	Size  int64     `json:"size"`
	Time  time.Time `json:"time"`
	Names []string  `json:"names"`
}

// loadImages loads the archives of the image directory that have changed since, or whose images are gone.
// One that cannot be loaded is told of and keeps no pod from starting.
func (o Options) loadImages(ctx context.Context, into loader) {
	dir := o.ImageDir
	if dir == "" {
		dir = o.Dirs.Images()
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && o.ImageDir == "" {
		return
	}
	if err != nil {
		o.Log.Warn("no image is loaded", "why", err)
		return
	}
	known := map[string]loaded{}
	if text, err := os.ReadFile(o.Dirs.LoadedImages()); err == nil {
		_ = json.Unmarshal(text, &known) // torn: all are loaded again
	}
	changed := false
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if !isArchive(e) || ctx.Err() != nil {
			continue
		}
		now, fresh, err := loadArchive(ctx, into, file, known[file])
		if err != nil {
			o.Log.Warn("an archive of images is not loaded", "file", file, "why", err)
			continue
		}
		if fresh {
			o.Log.Info("loaded images", "file", file, "images", strings.Join(now.Names, " "))
			known[file], changed = now, true
		}
	}
	if !changed {
		return
	}
	text, err := json.Marshal(known)
	if err == nil {
		err = sys.WriteFile(o.Dirs.LoadedImages(), text, 0o600)
	}
	if err != nil {
		o.Log.Warn("archives of images will be loaded again", "why", err)
	}
}

// isArchive tells an archive by its name, as manifests are told.
func isArchive(e fs.DirEntry) bool {
	return !e.IsDir() && !strings.HasPrefix(e.Name(), ".") &&
		slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"}, func(end string) bool { return strings.HasSuffix(e.Name(), end) })
}

// loadArchive loads a file unless it is what was loaded before and all of that is there; fresh: it did.
func loadArchive(ctx context.Context, into loader, file string, before loaded) (now loaded, fresh bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return now, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return now, false, err
	}
	if before.Size == info.Size() && before.Time.Equal(info.ModTime()) && len(before.Names) > 0 {
		missing := slices.ContainsFunc(before.Names, func(name string) bool {
			_, err := into.Resolve(ctx, name)
			return err != nil
		})
		if !missing {
			return before, false, nil
		}
	}
	names, err := into.Load(ctx, f)
	if err != nil {
		return now, false, fmt.Errorf("loading: %w", err)
	}
	return loaded{Size: info.Size(), Time: info.ModTime(), Names: names}, true, nil
}
