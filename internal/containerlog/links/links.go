// Package links makes the links to container logs that log collectors read: in one directory for all
// pods, with the names that the kubelet gives them. The directory is shared with the kubelet and with
// other podrun instances: a link is podrun's own if it leads to a log in podrun's log directory and
// has the name that podrun gives such a link. Anything else stays as it is.
//
// Begin reading at Create.
package links

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/own"
)

const (
	suffix = ".log"
	// maxName is the maximum length of a file's name. As in the kubelet a longer name is cut, which
	// may cut off the instance's ID.
	maxName = 255
	// idLength is the length of an instance's ID. The kubelet's IDs have another one.
	idLength = 32
)

// nameOf returns the name of the link to an instance's log.
func nameOf(i pod.Instance) string {
	name := prefixOf(i.Key, i.Container) + i.ID
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

// prefixOf returns what the names of the links of a container's instances begin with.
func prefixOf(key pod.Key, container string) string {
	return key.Name + "_" + key.Namespace + "_" + container + "-"
}

// Create makes the link to the log of an instance, unless it exists. The log need not exist yet.
func Create(dirs layout.Dirs, i pod.Instance) error {
	if dirs.LogLinks == "" {
		return nil
	}
	if err := own.MkdirShared(dirs.LogLinks, layout.ModeLogs); err != nil {
		return err
	}
	root, err := os.OpenRoot(dirs.LogLinks)
	if err != nil {
		return err
	}
	defer root.Close()
	name, target := nameOf(i), dirs.ContainerLog(i.Key, i.UID, i.Container, i.Attempt)
	is, err := root.Readlink(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return root.Symlink(target, name)
	case err == nil && is == target:
		return nil
	}
	if _, ours := parse(dirs, name, is); !ours {
		return fmt.Errorf("%s exists, and is not podrun's", filepath.Join(dirs.LogLinks, name))
	}
	// The name is cut and has no ID, so an earlier instance has it.
	if err := root.Remove(name); err != nil {
		return err
	}
	return root.Symlink(target, name)
}

// RemoveUpTo removes the links of an instance and of all earlier instances of its container.
func RemoveUpTo(dirs layout.Dirs, last pod.Instance) error {
	return remove(dirs, func(l link) bool {
		return l.uid == last.UID && l.container == last.Container && l.attempt <= last.Attempt
	})
}

// RemoveRevision removes all links of a pod revision.
func RemoveRevision(dirs layout.Dirs, uid pod.UID) error {
	return remove(dirs, func(l link) bool { return l.uid == uid })
}

// link is what the target of a link says.
type link struct {
	uid       pod.UID
	container string
	attempt   int
}

// remove removes podrun's own links that which selects.
func remove(dirs layout.Dirs, which func(link) bool) error {
	if dirs.LogLinks == "" {
		return nil
	}
	root, err := os.OpenRoot(dirs.LogLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		target, err := root.Readlink(e.Name())
		if err != nil {
			continue // another podrun or the kubelet has removed it
		}
		if l, ours := parse(dirs, e.Name(), target); ours && which(l) {
			if err := root.Remove(e.Name()); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// parse returns what a link of that name and target is the link of; false if it is not podrun's own.
func parse(dirs layout.Dirs, name, target string) (link, bool) {
	within, below := strings.CutPrefix(target, dirs.Log+"/")
	parts := strings.Split(within, "/")
	if !below || len(parts) != 3 {
		return link{}, false
	}
	of := strings.SplitN(parts[0], "_", 3)
	number, isLog := strings.CutSuffix(parts[2], suffix)
	attempt, err := strconv.ParseUint(number, 10, 31)
	if len(of) != 3 || !isLog || err != nil {
		return link{}, false
	}
	l := link{uid: pod.UID(of[2]), container: parts[1], attempt: int(attempt)}
	prefix := prefixOf(pod.Key{Namespace: of[0], Name: of[1]}, l.container)
	if len(name) == maxName {
		return l, strings.HasPrefix(prefix+strings.Repeat("0", idLength), name[:min(len(prefix), maxName-len(suffix))])
	}
	id, named := strings.CutPrefix(strings.TrimSuffix(name, suffix), prefix)
	return l, named && len(id) == idLength
}
