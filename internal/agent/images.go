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

// loader is the part of the runtime that loads image archives.
type loader interface {
	Load(ctx context.Context, archive io.Reader) ([]string, error)
	Resolve(ctx context.Context, ref string) (pod.Image, error)
}

// loaded records the images of a loaded archive, and the size and time that tell whether the
// archive has changed.
type loaded struct {
	Size  int64     `json:"size"`
	Time  time.Time `json:"time"`
	Names []string  `json:"names"`
}

// loadImages loads those archives of the image directory that have changed since they were loaded,
// or whose images are missing. It logs an archive that cannot be loaded; that does not prevent pods
// from starting.
func (o Options) loadImages(ctx context.Context, into loader) {
	dir := o.ImageDir
	if dir == "" {
		dir = o.Dirs.ImageFiles().Archives()
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && o.ImageDir == "" {
		return
	}
	if err != nil {
		o.Log.Warn("reading the image directory failed; no image archive is loaded", "err", err)
		return
	}
	known := map[string]loaded{}
	if text, err := os.ReadFile(o.Dirs.ImageFiles().Loaded()); err == nil {
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
			o.Log.Warn("loading an image archive failed", "file", file, "err", err)
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
		err = sys.WriteFile(o.Dirs.ImageFiles().Loaded(), text, 0o600)
	}
	if err != nil {
		o.Log.Warn("saving the list of loaded image archives failed; they will be loaded again", "err", err)
	}
}

// isArchive reports by its name whether a directory entry is an image archive.
func isArchive(e fs.DirEntry) bool {
	return !e.IsDir() && !strings.HasPrefix(e.Name(), ".") &&
		slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"}, func(end string) bool {
			return strings.HasSuffix(e.Name(), end)
		})
}

// loadArchive loads an archive unless it is unchanged and all of its images are present. fresh
// reports that it was loaded.
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
