package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// NotDirectory returns an error that names the flag, if err is one of a path in one of podrun's directories that
// cannot exist, because something above it is a file; else nil.
//
// It is asked only when a command has failed: a command that does nothing in a directory may be given any.
func (g *Global) NotDirectory(err error) error {
	var failed *fs.PathError
	if !errors.As(err, &failed) || !errors.Is(failed.Err, syscall.ENOTDIR) {
		return nil
	}
	for _, d := range g.directories() {
		if *d.path == "" || failed.Path != *d.path && !strings.HasPrefix(failed.Path, *d.path+"/") {
			continue
		}
		for above := filepath.Dir(*d.path); above != "/" && above != "."; above = filepath.Dir(above) {
			if info, err := os.Stat(above); err == nil && !info.IsDir() {
				return fmt.Errorf("--%s %s: %s is not a directory", d.name, *d.path, above)
			}
		}
	}
	return nil
}

// namedDirectory is a directory with the name of the flag that names it.
type namedDirectory struct {
	name string
	path *string
}

func (g *Global) directories() []namedDirectory {
	return []namedDirectory{
		{"root-dir", &g.RootDir}, {"run-dir", &g.RunDir}, {"log-dir", &g.LogDir}, {"log-links-dir", &g.LogLinksDir},
	}
}
