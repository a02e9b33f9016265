// Package images makes images available to the pods of serve and once beforehand: it decides which
// image archives of a directory have to be loaded (Archives.Load), and which images garbage
// collection must keep (Archives.Needed). It also sets up that collection (NewKeeper).
//
// The package imports no archive itself (package runtime/containerd/images does), pulls no images
// and removes none.
//
// Begin reading at Archives.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Loader is the part of the runtime that loads image archives.
type Loader interface {
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

// Archives are the image archives of a directory.
type Archives struct {
	// Dir has the archives. Empty: the directory below the root directory, which need not exist.
	Dir  string
	Dirs layout.Dirs
	// Loading is called before an archive is loaded, which may take minutes, and done after it. May be nil.
	Loading func(file string) (done func())
	Log     *slog.Logger
}

// Load loads those archives of the image directory that have changed since they were loaded,
// or whose images are missing. It logs an archive that cannot be loaded; that does not prevent pods
// from starting.
func (a Archives) Load(ctx context.Context, into Loader) {
	dir := a.Dir
	if dir == "" {
		dir = a.Dirs.ImageFiles().Archives()
	}
	dir, err := filepath.Abs(dir) // what is recorded is for all working directories
	if err != nil {
		a.Log.Warn("finding the image directory failed; no image archive is loaded", "err", err)
		return
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && a.Dir == "" {
		return
	}
	if err != nil {
		a.Log.Warn("reading the image directory failed; no image archive is loaded", "err", err)
		return
	}
	known := a.loaded()
	changed := a.forget(known, dir, entries)
	var others []string
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if ctx.Err() != nil {
			break
		}
		if !isArchive(e) {
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				others = append(others, e.Name())
			}
			continue
		}
		now, fresh, err := a.load(ctx, into, file, known[file])
		if err != nil {
			a.Log.Warn("loading an image archive failed", "file", file, "err", err)
		}
		if fresh {
			a.Log.Info("loaded images", "file", file, "images", strings.Join(now.Names, " "))
			known[file], changed = now, true
		}
	}
	if len(others) > 0 {
		a.Log.Info("not loaded from the image directory: the names of image archives end with "+
			strings.Join(archiveEnds, ", "), "files", strings.Join(others, " "))
	}
	if !changed {
		return
	}
	text, err := json.Marshal(known)
	if err == nil {
		err = sys.WriteFile(a.Dirs.ImageFiles().Loaded(), text, 0o600)
	}
	if err != nil {
		a.Log.Warn("saving the list of loaded image archives failed; they will be loaded again", "err", err)
	}
}

// forget removes the archives that are no longer in the directory from those that are known, so that
// garbage collection need not keep their images. It keeps them if the directory has no archive,
// because its file system may not be mounted.
func (a Archives) forget(known map[string]loaded, dir string, entries []fs.DirEntry) (changed bool) {
	if !slices.ContainsFunc(entries, isArchive) {
		return false
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[filepath.Join(dir, e.Name())] = true
	}
	for file, archive := range known {
		if filepath.Dir(file) == dir && !there[file] {
			a.Log.Info("an image archive was removed; garbage collection need not keep its images",
				"file", file, "images", strings.Join(archive.Names, " "))
			delete(known, file)
			changed = true
		}
	}
	return changed
}

// loaded returns what is recorded of the archives that were loaded, by path. An incomplete record is
// as none: all are loaded again.
func (a Archives) loaded() map[string]loaded {
	known := map[string]loaded{}
	if text, err := os.ReadFile(a.Dirs.ImageFiles().Loaded()); err == nil {
		_ = json.Unmarshal(text, &known)
	}
	return known
}

// archiveEnds are the ends of the names of image archives.
var archiveEnds = []string{".tar", ".tar.gz", ".tgz", ".tar.zst"}

// isArchive reports by its name whether a directory entry is an image archive.
func isArchive(e fs.DirEntry) bool {
	return !e.IsDir() && !strings.HasPrefix(e.Name(), ".") &&
		slices.ContainsFunc(archiveEnds, func(end string) bool { return strings.HasSuffix(e.Name(), end) })
}

// load loads an archive unless it is unchanged and all of its images are present. fresh
// reports that it was loaded. If only some of its images could be loaded, it returns what is known of the archive
// together with the error.
func (a Archives) load(
	ctx context.Context, into Loader, file string, before loaded,
) (now loaded, fresh bool, err error) {
	const anywhere sys.Follow = 0 // archives may be links
	f, err := sys.OpenRegular(filepath.Dir(file), filepath.Base(file), anywhere, os.O_RDONLY)
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
	if a.Loading != nil {
		defer a.Loading(file)()
	}
	names, err := into.Load(ctx, f)
	if err != nil {
		// Without size and time it is loaded again at the next start. What was loaded before stays too.
		all := slices.Concat(before.Names, names)
		slices.Sort(all)
		return loaded{Names: slices.Compact(all)}, len(names) > 0, fmt.Errorf("loading: %w", err)
	}
	return loaded{Size: info.Size(), Time: info.ModTime(), Names: names}, true, nil
}
