package file

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/own"
)

// looseDirs returns a LooseError for each directory in which other users could add or replace a
// manifest, and for each symbolic link that they could change: the directory of the manifests, and
// all directories and links on the way to it and to the targets of links in it.
func (s *scanner) looseDirs(paths map[string]fs.DirEntry) []error {
	info, err := os.Stat(s.path)
	if err != nil { // optional, or just gone
		return nil
	}
	all := own.LooseOnWay(s.path)
	if info.IsDir() {
		if err := own.Loose(s.path, info, true); err != nil {
			all = append([]error{err}, all...)
		}
	}
	links := []string{}
	for path, e := range paths {
		if e != nil && e.Type()&fs.ModeSymlink != 0 {
			links = append(links, path)
		}
	}
	slices.Sort(links)
	for _, path := range links {
		all = append(all, own.LooseOnWay(path)...)
	}
	return distinct(all)
}

// distinct retains only the first LooseError of each path.
func distinct(errs []error) []error {
	said := map[string]bool{}
	return slices.DeleteFunc(errs, func(err error) bool {
		var l *own.LooseError
		if !errors.As(err, &l) {
			return false
		}
		before := said[l.Path]
		said[l.Path] = true
		return before
	})
}

// warns reports whether err is worth a warning about a manifest that is used nevertheless. A
// foreign owner is worth one only if the path is lasting: a path that is run once is usually in a
// user's working copy, which that user owns.
func (s *scanner) warns(err error) bool {
	var l *own.LooseError
	return err != nil && !s.strict && (s.lasting || !errors.As(err, &l) || !l.Owned)
}

// sameErrors reports whether two lists have the same error texts.
func sameErrors(a, b []error) bool {
	return slices.EqualFunc(a, b, errtext.Same)
}
